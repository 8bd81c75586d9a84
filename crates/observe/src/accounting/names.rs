//! Names that are told apart, each by its number: a day has millions of rows and few names, and numbers are compared and
//! kept at less cost.

use super::OTHERS;
use penstock_model::observation::Text;
use std::collections::HashMap;

/// Names in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct NameNumbers {
    numbers: HashMap<Text, u32>,
    names: Vec<Text>,
}

impl NameNumbers {
    /// The number of a name that has one.
    pub(super) fn known(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The number of a name; it gets one when it has none.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.known(name) {
            return number;
        }
        let number = self.names.len() as u32;
        let name: Text = name.into();
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// The same with so many names at most; `None`: there are as many, and this is none of them.
    pub(super) fn number_within(&mut self, name: &str, names_max: usize) -> Option<u32> {
        match self.names.len() < names_max {
            true => Some(self.number(name)),
            false => self.known(name),
        }
    }

    /// The number of a name; when its table is full and has no line of it, that of [`OTHERS`].
    pub(super) fn number_in(
        &mut self,
        name: &str,
        is_full: bool,
        has_line: impl Fn(u32) -> bool,
    ) -> u32 {
        if !is_full {
            return self.number(name);
        }
        let known = self.known(name).filter(|number| has_line(*number));
        known.unwrap_or_else(|| self.number(OTHERS))
    }

    /// The name of a number that was given.
    pub(super) fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_tells_further_names_together() {
        let mut names = NameNumbers::default();
        let (a, b) = (names.number("a"), names.number("b"));
        assert_eq!(names.number("a"), a);
        assert_eq!((names.known("b"), names.known("c")), (Some(b), None));
        let number = names.number_in("b", true, |number| number == b);
        assert_eq!(names.name(number), "b");
        for name in ["a", "c"] {
            let number = names.number_in(name, true, |number| number == b);
            assert_eq!(names.name(number), OTHERS);
        }
        assert_eq!(names.number_within("d", 2), None);
        assert_eq!(names.number_within("a", 2), Some(a));
    }
}
