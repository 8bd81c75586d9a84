//! The intervals of equal length that a window is cut into.

use penstock_model::Timestamp;

#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowBins {
    pub begin: Timestamp,
    pub step_ms: i64,
    pub count: usize,
}

impl WindowBins {
    /// The bin of a moment; `None`: it lies outside of the window.
    pub(crate) fn of_time(self, at: Timestamp) -> Option<usize> {
        let bin = (at.0 - self.begin.0).div_euclid(self.step_ms);
        let bin = usize::try_from(bin).ok()?;
        (bin < self.count).then_some(bin)
    }

    /// The part of a span that lies in each bin, in milliseconds.
    pub(crate) fn overlaps(
        self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = (usize, f64)> {
        let begin = self.begin.0;
        let length = self.step_ms.saturating_mul(self.count as i64);
        let (mut at, to) = (from.0.max(begin), to.0.min(begin.saturating_add(length)));
        std::iter::from_fn(move || {
            if at >= to {
                return None;
            }
            let bin = (at - begin).div_euclid(self.step_ms);
            let next = (begin + (bin + 1) * self.step_ms).min(to);
            let part = (usize::try_from(bin).ok()?, (next - at) as f64);
            at = next;
            Some(part)
        })
    }
}
