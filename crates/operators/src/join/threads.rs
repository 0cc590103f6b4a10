//! Work that several threads share while one waits for it.

/// Does the same on several threads; what each has come to.
pub fn on_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mine = work();
        let others = others.into_iter();
        let others = others.map(|other| other.join().expect("building does not panic"));
        std::iter::once(mine).chain(others).collect()
    })
}
