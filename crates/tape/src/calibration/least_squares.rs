//! Weighted least squares by normal equations, solved by Cholesky's decomposition.

/// What observations sum up to.
pub(super) struct Normal {
    size: usize,
    /// Row by row; the lower half counts.
    matrix: Vec<f64>,
    side: Vec<f64>,
}

impl Normal {
    pub(super) fn new(size: usize) -> Normal {
        Normal {
            size,
            matrix: vec![0.0; size * size],
            side: vec![0.0; size],
        }
    }

    /// Holds an unknown to a figure, with this standard deviation.
    pub(super) fn hold(&mut self, place: usize, figure: f64, sigma: f64) {
        let weight = 1.0 / (sigma * sigma);
        self.matrix[place * self.size + place] += weight;
        self.side[place] += weight * figure;
    }

    /// One observation: its terms by the places of their unknowns, what was seen, and one divided by its variance.
    pub(super) fn add(&mut self, terms: &[(usize, f64)], seen: f64, weight: f64) {
        for (row, left) in terms {
            self.side[*row] += weight * left * seen;
            for (column, right) in terms {
                if column <= row {
                    self.matrix[row * self.size + column] += weight * left * right;
                }
            }
        }
    }

    /// The unknowns with their standard errors; `None` when they are not determined.
    pub(super) fn solve(mut self) -> Option<(Vec<f64>, Vec<f64>)> {
        self.decompose()?;
        let side = std::mem::take(&mut self.side);
        let solution = self.substitute(side);
        let error = |place: usize| {
            let mut unit = vec![0.0; self.size];
            unit[place] = 1.0;
            self.substitute(unit)[place].sqrt()
        };
        // Of many unknowns nobody asks for the errors.
        const ERRORS_MAX: usize = 16;
        let errors = (0..self.size.min(ERRORS_MAX)).map(error).collect();
        Some((solution, errors))
    }

    fn decompose(&mut self) -> Option<()> {
        let size = self.size;
        for row in 0..size {
            for column in 0..=row {
                let mut sum = self.matrix[row * size + column];
                for before in 0..column {
                    sum -= self.matrix[row * size + before] * self.matrix[column * size + before];
                }
                self.matrix[row * size + column] = if row == column {
                    if sum <= 0.0 {
                        return None;
                    }
                    sum.sqrt()
                } else {
                    sum / self.matrix[column * size + column]
                };
            }
        }
        Some(())
    }

    fn substitute(&self, mut side: Vec<f64>) -> Vec<f64> {
        let size = self.size;
        for row in 0..size {
            let known = 0..row;
            let sum: f64 = known
                .map(|before| self.matrix[row * size + before] * side[before])
                .sum();
            side[row] = (side[row] - sum) / self.matrix[row * size + row];
        }
        for row in (0..size).rev() {
            let known = row + 1..size;
            let sum: f64 = known
                .map(|behind| self.matrix[behind * size + row] * side[behind])
                .sum();
            side[row] = (side[row] - sum) / self.matrix[row * size + row];
        }
        side
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_what_is_not_seen_stays_as_it_was_held() {
        let mut normal = Normal::new(3);
        for place in 0..3 {
            normal.hold(place, 7.0, 1_000.0);
        }
        for x in 0..10 {
            let x = f64::from(x);
            normal.add(&[(0, 1.0), (1, x)], 3.0 + 2.0 * x, 1.0);
        }
        let (solution, errors) = normal.solve().expect("determined");
        assert!((solution[0] - 3.0).abs() < 1e-3 && (solution[1] - 2.0).abs() < 1e-3);
        assert!((solution[2] - 7.0).abs() < 1e-9);
        assert!(errors[1] < errors[0] && errors[2] > 999.0);
        assert!(Normal::new(1).solve().is_none());
    }
}
