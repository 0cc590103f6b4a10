//! The checkout, read as text.
//!
//! Each module is one rule: the check itself as a function over text, small examples that show that it can fail, and
//! one test over the checkout. What broke a rule when the rule was made is listed in `ceilings/`, each with a number
//! that it must not exceed; everything else must keep the rule. To write today's numbers into the lists, for example
//! after moving a file: `HOTSHELF_TIDY=accept cargo test -p hotshelf-tidy`. The numbers must only get smaller.
#![forbid(unsafe_code)]

mod ceilings;
mod checkout;
mod circles;
mod directions;
mod lengths;
mod links;
mod source;
mod unsafe_code;
mod words;
