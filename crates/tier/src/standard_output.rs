//! Whether the program was started with its standard output closed.
//!
//! The standard library opens `/dev/null` in the place of closed standard streams before `main` runs, and what
//! is printed then vanishes without an error.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the program started. Known on Linux; elsewhere the answer is no.
pub fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
extern "C" fn look() {
    // SAFETY: `fcntl` with `F_GETFD` reads the flags of a descriptor, and fails if there is none.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: the C library calls the pointers of this section before `main`, with arguments that `look` ignores.
// `look` needs nothing of the standard library that would have to be set up first.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_START: extern "C" fn() = look;

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_has_its_standard_output() {
        assert!(!super::was_closed());
    }
}
