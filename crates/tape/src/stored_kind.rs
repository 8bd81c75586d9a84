//! How a record is read whose kinds stand in several enums, and lie side by side where it is stored: `{"Kind": {…}}`, whichever enum
//! has the kind. Serde's own way to do that, an untagged variant, first reads all into a value of its own, in which no key of a map is
//! a number any more.

use serde::de::value::{EnumAccessDeserializer, StrDeserializer};
use serde::de::{EnumAccess, Error, IntoDeserializer, VariantAccess};
use std::cell::Cell;

/// The kind of a record, and what follows it.
pub(crate) struct StoredKind<V> {
    kind: String,
    /// Taken by the first enum that has the kind.
    content: Cell<Option<V>>,
}

impl<V> StoredKind<V> {
    pub(crate) fn of<'de, A: EnumAccess<'de, Variant = V>>(access: A) -> Result<Self, A::Error> {
        let (kind, content) = access.variant()?;
        let content = Cell::new(Some(content));
        Ok(StoredKind { kind, content })
    }

    /// Has an enum read the record. `None`: it has no such kind.
    pub(crate) fn read<'de, 'own, T>(
        &'own self,
        read: impl FnOnce(EnumAccessDeserializer<&'own Self>) -> Result<T, V::Error>,
    ) -> Option<Result<T, V::Error>>
    where
        V: VariantAccess<'de>,
    {
        let done = read(EnumAccessDeserializer::new(self));
        let content = self.content.take();
        let is_left = content.is_some();
        self.content.set(content);
        (!is_left).then_some(done)
    }

    /// No enum has the kind.
    pub(crate) fn unknown<E: Error>(&self) -> E {
        let kind = &self.kind;
        E::custom(format_args!(
            "{kind} is no record that this version of penstock knows"
        ))
    }
}

impl<'de, V: VariantAccess<'de>> EnumAccess<'de> for &StoredKind<V> {
    type Error = V::Error;
    type Variant = V;

    fn variant_seed<S>(self, seed: S) -> Result<(S::Value, V), V::Error>
    where
        S: serde::de::DeserializeSeed<'de>,
    {
        let kind: StrDeserializer<'_, V::Error> = self.kind.as_str().into_deserializer();
        let kind = seed.deserialize(kind)?;
        let content = self.content.take();
        let content = content.ok_or_else(|| V::Error::custom("a record is read once"))?;
        Ok((kind, content))
    }
}
