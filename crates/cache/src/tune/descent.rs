//! x
use super::Solution;
use crate::model::Problem;
pub fn descend(problem: &Problem) -> Solution { Solution::new(problem, vec![0.0; problem.choices.len()]) }
