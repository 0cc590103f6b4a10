//! What a program that embeds the database sets up or asks for once, when it starts.

pub use hotshelf_tier::allocator::keep_freed_memory;
pub use hotshelf_tier::standard_output::was_closed as standard_output_was_closed;
