//! Things with numbers, where the number of one that has gone is given to another, the lowest first. Who keeps a number of
//! something makes sure that it has not gone.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

/// The things, by number.
#[derive(Debug)]
pub(super) struct NumberedSet<T> {
    places: Vec<Option<T>>,
    /// Numbers of places that are empty.
    free: BTreeSet<usize>,
}

impl<T> Default for NumberedSet<T> {
    fn default() -> NumberedSet<T> {
        NumberedSet {
            places: Vec::new(),
            free: BTreeSet::new(),
        }
    }
}

impl<T> NumberedSet<T> {
    /// Gives something a number.
    pub(super) fn add(&mut self, thing: T) -> usize {
        match self.free.pop_first() {
            Some(number) => {
                self.places[number] = Some(thing);
                number
            }
            None => {
                self.places.push(Some(thing));
                self.places.len() - 1
            }
        }
    }

    /// Takes something out: its number is free.
    pub(super) fn remove(&mut self, number: usize) -> Option<T> {
        let thing = self.places.get_mut(number)?.take()?;
        self.free.insert(number);
        Some(thing)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The numbers that are in use, in their order.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.iter().map(|(number, _)| number).collect()
    }

    /// All with their numbers, in the order of these.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(number, place)| Some((number, place.as_ref()?)))
    }

    /// The same, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let places = self.places.iter_mut().enumerate();
        places.filter_map(|(number, place)| Some((number, place.as_mut()?)))
    }

    /// All, in the order of their numbers.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// The same, to be changed.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

impl<T> Index<usize> for NumberedSet<T> {
    type Output = T;

    fn index(&self, number: usize) -> &T {
        let thing = self.places[number].as_ref();
        thing.expect("whose number is kept has not gone")
    }
}

impl<T> IndexMut<usize> for NumberedSet<T> {
    fn index_mut(&mut self, number: usize) -> &mut T {
        let thing = self.places[number].as_mut();
        thing.expect("whose number is kept has not gone")
    }
}
