//! Pure: a tree of losers, which knows the first of several rows and finds the next with few comparisons.

/// Players are numbered from 0. `wins(a, b)`: the row of player `a` comes before that of `b`; never true both ways.
#[derive(Debug)]
pub(super) struct Tournament {
    /// `nodes[0]` is the winner, the others are the losers of their matches; player `p` enters at node `(p + n) / 2`.
    nodes: Vec<usize>,
}

impl Tournament {
    pub(super) fn new(player_count: usize, wins: impl Fn(usize, usize) -> bool) -> Self {
        let mut winners = vec![0; player_count];
        winners.extend(0..player_count);
        let mut nodes = vec![0; player_count];
        for node in (1..player_count).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let first = wins(a, b);
            winners[node] = if first { a } else { b };
            nodes[node] = if first { b } else { a };
        }
        if player_count > 1 {
            nodes[0] = winners[1];
        }
        Self { nodes }
    }

    pub(super) fn winner(&self) -> usize {
        self.nodes[0]
    }

    /// Plays the winner's matches again, after its row changed.
    pub(super) fn replay(&mut self, wins: impl Fn(usize, usize) -> bool) {
        let mut player = self.nodes[0];
        let mut node = (player + self.nodes.len()) / 2;
        while node > 0 {
            if wins(self.nodes[node], player) {
                std::mem::swap(&mut self.nodes[node], &mut player);
            }
            node /= 2;
        }
        self.nodes[0] = player;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_merges_lists(lists in proptest::collection::vec(proptest::collection::vec(0u8..20, 0..10), 1..12)) {
            let mut lists = lists;
            lists.iter_mut().for_each(|list| list.sort_unstable());
            let mut expected: Vec<(u8, usize)> = Vec::new();
            for (player, list) in lists.iter().enumerate() {
                expected.extend(list.iter().map(|&value| (value, player)));
            }
            expected.sort_unstable();
            let mut at = vec![0; lists.len()];
            let value = |at: &[usize], player: usize| lists[player].get(at[player]).copied();
            let head = |at: &[usize], player| (value(at, player).map_or(255, u16::from), player);
            let mut tournament = Tournament::new(lists.len(), |a, b| head(&at, a) < head(&at, b));
            let mut merged = Vec::new();
            while let Some(&value) = lists[tournament.winner()].get(at[tournament.winner()]) {
                merged.push((value, tournament.winner()));
                at[tournament.winner()] += 1;
                tournament.replay(|a, b| head(&at, a) < head(&at, b));
            }
            prop_assert_eq!(merged, expected);
        }
    }
}
