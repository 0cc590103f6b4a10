//! Linear programs, solved by the dual simplex method on a dense table: right for the few hundred variables and
//! constraints that a window of queries has.

use super::TuneError;

/// A number this close to zero is zero.
const ZERO: f64 = 1e-9;

/// Costs are raised by about this much, each by another part of it, so that no two ways out of a corner are equal.
const PERTURBATION: f64 = 1e-9;

/// Pivots per variable and constraint after which the program counts as unsolvable.
const PIVOTS_PER_LINE_MAX: usize = 50;

/// Minimise `costs * v` subject to `v >= 0` and to upper bounds of sums. Variables of negative cost are at most 1.
pub(super) struct Program {
    costs: Vec<f64>,
    rows: Vec<Row>,
}

/// Coefficients of variables, and the upper bound of their sum.
pub(super) type Row = (Vec<(usize, f64)>, f64);

impl Program {
    pub(super) fn new(costs: Vec<f64>) -> Self {
        Self {
            costs,
            rows: Vec::new(),
        }
    }

    /// Costs and constraints.
    #[cfg(test)]
    pub(super) fn parts(&self) -> (&[f64], &[Row]) {
        (&self.costs, &self.rows)
    }

    /// Adds the constraint `sum of coefficient * variable <= bound`.
    pub(super) fn at_most(
        &mut self,
        bound: f64,
        coefficients: impl IntoIterator<Item = (usize, f64)>,
    ) {
        self.rows.push((coefficients.into_iter().collect(), bound));
    }

    /// How many constraints there are: the number of the next.
    pub(super) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The best values of the variables and the price of each constraint.
    pub(super) fn solve(&self) -> Result<(Vec<f64>, Vec<f64>), TuneError> {
        if !self.is_finite() {
            return Err(unsolved("numbers that are not finite"));
        }
        let is_mirrored: Vec<bool> = self.costs.iter().map(|cost| *cost < 0.0).collect();
        let mut table = Table::new(self, &is_mirrored);
        table.solve()?;
        let mut values = table.values(self.costs.len());
        for (value, _) in values.iter_mut().zip(&is_mirrored).filter(|(_, is)| **is) {
            *value = 1.0 - *value;
        }
        Ok((values, table.prices(self.rows.len())))
    }

    fn is_finite(&self) -> bool {
        let rows = self.rows.iter();
        let numbers =
            rows.flat_map(|(row, bound)| row.iter().map(|(_, value)| value).chain([bound]));
        self.costs
            .iter()
            .chain(numbers)
            .all(|number| number.is_finite())
    }
}

/// The variables outside the basis are columns, those inside it are rows. Lines are named by variable: first those
/// of the program, then one slack per constraint.
///
/// Invariant: costs are never negative, so that a table without negative bounds is optimal.
struct Table {
    columns: Vec<usize>,
    rows: Vec<usize>,
    cells: Vec<Vec<f64>>,
    bounds: Vec<f64>,
    costs: Vec<f64>,
    variable_count: usize,
}

impl Table {
    /// A variable that is mirrored stands for 1 minus itself, which makes its cost positive.
    fn new(program: &Program, is_mirrored: &[bool]) -> Self {
        let variable_count = program.costs.len();
        let (mut cells, mut bounds) = (Vec::new(), Vec::new());
        for (coefficients, bound) in &program.rows {
            let mut row = vec![0.0; variable_count];
            let mut rest = *bound;
            for (variable, value) in coefficients {
                if is_mirrored[*variable] {
                    row[*variable] -= value;
                    rest -= value;
                } else {
                    row[*variable] += value;
                }
            }
            cells.push(row);
            bounds.push(rest);
        }
        for (variable, _) in is_mirrored.iter().enumerate().filter(|(_, is)| **is) {
            let mut row = vec![0.0; variable_count];
            row[variable] = 1.0;
            cells.push(row);
            bounds.push(1.0);
        }
        let part = |variable: usize| (variable as f64 * 0.618_033_988_75).fract();
        let costs = program.costs.iter().enumerate();
        Self {
            columns: (0..variable_count).collect(),
            rows: (variable_count..variable_count + cells.len()).collect(),
            costs: costs
                .map(|(variable, cost)| cost.abs() + PERTURBATION * (1.0 + part(variable)))
                .collect(),
            cells,
            bounds,
            variable_count,
        }
    }

    fn solve(&mut self) -> Result<(), TuneError> {
        let pivots_max = PIVOTS_PER_LINE_MAX * (self.rows.len() + self.columns.len() + 1);
        for _ in 0..pivots_max {
            let Some(row) = self.worst_row() else {
                return Ok(());
            };
            let column = self
                .best_column(row)
                .ok_or_else(|| unsolved("infeasible"))?;
            self.pivot(row, column);
        }
        Err(unsolved("too many steps"))
    }

    /// The constraint that is violated most.
    fn worst_row(&self) -> Option<usize> {
        let violated = (0..self.rows.len()).filter(|row| self.bounds[*row] < -ZERO);
        violated.min_by(|a, b| self.bounds[*a].total_cmp(&self.bounds[*b]))
    }

    /// The variable whose rise mends a constraint at the least cost.
    fn best_column(&self, row: usize) -> Option<usize> {
        let cells = &self.cells[row];
        let mends = (0..self.columns.len()).filter(|column| cells[*column] < -ZERO);
        let price = |column: usize| self.costs[column] / -cells[column];
        mends.min_by(|a, b| price(*a).total_cmp(&price(*b)))
    }

    /// Exchanges a row's variable for a column's.
    fn pivot(&mut self, row: usize, column: usize) {
        let pivot = 1.0 / self.cells[row][column];
        self.cells[row].iter_mut().for_each(|cell| *cell *= pivot);
        self.cells[row][column] = pivot;
        self.bounds[row] *= pivot;
        let (pivot_cells, pivot_bound) = (self.cells[row].clone(), self.bounds[row]);
        for other in (0..self.rows.len()).filter(|other| *other != row) {
            let factor = self.cells[other][column];
            if factor != 0.0 {
                subtract(&mut self.cells[other], factor, &pivot_cells, column);
                self.bounds[other] -= factor * pivot_bound;
            }
        }
        let factor = self.costs[column];
        subtract(&mut self.costs, factor, &pivot_cells, column);
        self.costs.iter_mut().for_each(|cost| *cost = cost.max(0.0));
        std::mem::swap(&mut self.rows[row], &mut self.columns[column]);
    }

    fn values(&self, variable_count: usize) -> Vec<f64> {
        let mut values = vec![0.0; variable_count];
        for (line, bound) in self.rows.iter().zip(&self.bounds) {
            if let Some(value) = values.get_mut(*line) {
                *value = *bound;
            }
        }
        values
    }

    fn prices(&self, constraint_count: usize) -> Vec<f64> {
        let mut prices = vec![0.0; constraint_count];
        for (line, cost) in self.columns.iter().zip(&self.costs) {
            let constraint = line.checked_sub(self.variable_count);
            if let Some(price) = constraint.and_then(|idx| prices.get_mut(idx)) {
                *price = *cost;
            }
        }
        prices
    }
}

/// Takes `factor` times a pivot row from a line; in the pivot's column the line's own value is gone.
fn subtract(line: &mut [f64], factor: f64, pivot_cells: &[f64], column: usize) {
    line[column] = 0.0;
    for (cell, pivot) in line.iter_mut().zip(pivot_cells) {
        *cell -= factor * pivot;
    }
}

fn unsolved(status: &str) -> TuneError {
    TuneError::Unsolved {
        status: status.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_corner_is_found_with_its_prices() {
        // At least 4 of a + b, at most 3 of a: a is cheaper, so 3 of it and 1 of b.
        let mut program = Program::new(vec![1.0, 2.0]);
        program.at_most(-4.0, [(0, -1.0), (1, -1.0)]);
        program.at_most(3.0, [(0, 1.0)]);
        let (values, prices) = program.solve().expect("it has a solution");
        let close = |found: &[f64], expected: &[f64]| {
            let pairs = found.iter().zip(expected);
            pairs.fold(0.0, |max: f64, (a, b)| max.max((a - b).abs())) < 1e-6
        };
        assert!(close(&values, &[3.0, 1.0]), "{values:?}");
        assert!(close(&prices, &[2.0, 1.0]), "{prices:?}");
    }

    #[test]
    fn a_variable_worth_having_is_taken_up_to_one() {
        let mut program = Program::new(vec![-1.0, -2.0]);
        program.at_most(1.5, [(0, 1.0), (1, 1.0)]);
        let (values, _) = program.solve().expect("it has a solution");
        assert!((values[0] - 0.5).abs() < 1e-6 && (values[1] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn contradictions_and_nonsense_are_refused() {
        let mut program = Program::new(vec![1.0]);
        program.at_most(1.0, [(0, 1.0)]);
        program.at_most(-2.0, [(0, -1.0)]);
        assert!(program.solve().is_err());
        let mut program = Program::new(vec![1.0]);
        program.at_most(f64::NAN, [(0, 1.0)]);
        assert!(program.solve().is_err());
    }
}
