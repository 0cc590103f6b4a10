//! A shelf for the tables of joins and groups, other than ordinary memory.

/// Where tables lie that an operator makes, and what using them takes there.
pub trait TableShelf: Send + Sync {
    /// Moves memory of a table there, as far as it can be moved.
    fn place(&self, memory: &[u8]);

    /// Waits for `count` reads at random places of tables that take `table_bytes` bytes together.
    fn read(&self, table_bytes: u64, count: u64);

    /// Waits for `count` places that are read and written.
    fn update(&self, table_bytes: u64, count: u64);
}
