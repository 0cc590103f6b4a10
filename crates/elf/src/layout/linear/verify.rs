//! The structure checker: walks the array once and accepts it only if every word is where it belongs.

use std::path::Path;

use hotshelf_tier::Corruption;

use super::{LAST, LinearElf, Link, Offset};

impl<O: Offset> LinearElf<O> {
    /// Checks the invariants of [`LinearElf`]. `file` is named in errors; offsets count from the start of
    /// the array.
    ///
    /// # Errors
    /// The first violation, in the order of the array.
    pub fn verify(&self, file: &Path) -> Result<(), Corruption> {
        let mut checker = Checker {
            elf: self,
            file,
            at: self.root_count * O::WORDS,
            tids: Vec::new(),
        };
        if self.words.len() < checker.at {
            return Err(checker.corrupt("first level", checker.at, self.words.len()));
        }
        for code in 0..self.root_count {
            let link = self.root(code);
            if link == Link::Absent && code + 1 == self.root_count {
                return Err(checker.corrupt("last code of the first level", "present", "absent"));
            }
            checker.check_link(link, 1)?;
        }
        if checker.at != self.words.len() {
            return Err(checker.corrupt("end of the array", checker.at, self.words.len()));
        }
        checker.check_tids()
    }
}

struct Checker<'a, O> {
    elf: &'a LinearElf<O>,
    file: &'a Path,
    /// The next word in preorder: where the next list or MonoList must start.
    at: usize,
    tids: Vec<u32>,
}

impl<O: Offset> Checker<'_, O> {
    fn corrupt(
        &self,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Corruption {
        Corruption {
            file: self.file.to_path_buf(),
            offset: self.at as u64 * 4,
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// The next `count` words, which are then accounted for.
    fn take(&mut self, count: usize, what: &'static str) -> Result<&[u32], Corruption> {
        let end = self.at + count;
        match self.elf.words.get(self.at..end) {
            Some(words) => {
                self.at = end;
                Ok(words)
            }
            None => Err(self.corrupt(what, format_args!("{count} words"), "the end of the array")),
        }
    }

    fn check_link(&mut self, link: Link, level: usize) -> Result<(), Corruption> {
        match link {
            Link::Absent if level == 1 => Ok(()),
            Link::Absent => Err(self.corrupt("link", "a list", "an absent link")),
            Link::Mono(at) | Link::List(at) if at != self.at => {
                Err(self.corrupt("link in preorder", self.at, at))
            }
            Link::Mono(_) => self.check_mono(level),
            Link::List(_) if level == self.elf.dimension_count => {
                Err(self.corrupt("link of the last level", "a MonoList", "a DimensionList"))
            }
            Link::List(_) => self.check_list(level),
        }
    }

    fn check_mono(&mut self, level: usize) -> Result<(), Corruption> {
        let suffix = self.take(self.elf.dimension_count - level, "MonoList")?;
        if let Some(code) = suffix.iter().find(|code| **code & LAST != 0).copied() {
            return Err(self.corrupt("code", "31 bits", code));
        }
        loop {
            let word = self.take(1, "TID")?[0];
            self.tids.push(word & !LAST);
            if word & LAST != 0 {
                return Ok(());
            }
        }
    }

    fn check_list(&mut self, level: usize) -> Result<(), Corruption> {
        let start = self.at;
        let mut previous = None;
        loop {
            let value = self.take(1 + O::WORDS, "DimensionList")?[0];
            if previous.is_some_and(|previous| value & !LAST <= previous) {
                return Err(self.corrupt("values of a list", "ascending", value & !LAST));
            }
            previous = Some(value & !LAST);
            if value & LAST != 0 {
                break;
            }
        }
        let end = self.at;
        for entry in (start..end).step_by(1 + O::WORDS) {
            let (_, _, link) = self.elf.entry(entry);
            self.check_link(link, level + 1)?;
        }
        Ok(())
    }

    fn check_tids(&mut self) -> Result<(), Corruption> {
        if self.tids.len() != self.elf.row_count {
            return Err(self.corrupt("number of TIDs", self.elf.row_count, self.tids.len()));
        }
        self.tids.sort_unstable();
        match self.tids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(self.corrupt("TID", "one occurrence", format_args!("{} twice", pair[0])))
            }
            None => Ok(()),
        }
    }
}
