//! Reading DER (X.690 §8 to §10), the encoding of certificates: as much as is needed for extensions that
//! OpenSSL's Rust interface does not show. Strict, borrows its input, and never recurses.

/// Tags that are looked for.
pub(crate) mod tag {
    pub(crate) const BOOLEAN: u8 = 0x01;
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const BIT_STRING: u8 = 0x03;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x31;
    /// `[n] EXPLICIT`, or any constructed context-specific element.
    pub(crate) const fn context(number: u8) -> u8 {
        0xa0 | number
    }
}

/// These bytes are not what the structure asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DerError;

/// Elements that follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next element whatever it is: its tag and its content.
    pub(crate) fn any(&mut self) -> Result<(u8, &'a [u8]), DerError> {
        let (&tag, rest) = self.rest.split_first().ok_or(DerError)?;
        // Tag numbers above 30 take more octets and occur nowhere here.
        if tag & 0x1f == 0x1f {
            return Err(DerError);
        }
        let (length, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(length).ok_or(DerError)?;
        self.rest = rest;
        Ok((tag, content))
    }

    /// The next element as it stands, with its tag and length.
    pub(crate) fn element(&mut self) -> Result<&'a [u8], DerError> {
        let before = self.rest;
        self.any()?;
        Ok(&before[..before.len() - self.rest.len()])
    }

    /// The content of the next element, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<&'a [u8], DerError> {
        match self.any()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(DerError),
        }
    }

    /// The same, if it is there.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, DerError> {
        match self.rest.first() {
            Some(next) if *next == tag => self.expect(tag).map(Some),
            _ => Ok(None),
        }
    }

    /// That nothing follows.
    pub(crate) fn end(&self) -> Result<(), DerError> {
        match self.rest {
            [] => Ok(()),
            _ => Err(DerError),
        }
    }
}

/// X.690 §10.1: definite, in the fewest octets.
fn length(bytes: &[u8]) -> Result<(usize, &[u8]), DerError> {
    let (&first, rest) = bytes.split_first().ok_or(DerError)?;
    if first < 0x80 {
        return Ok((usize::from(first), rest));
    }
    let octets = usize::from(first & 0x7f);
    if !(1..=4).contains(&octets) {
        return Err(DerError);
    }
    let (encoded, rest) = rest.split_at_checked(octets).ok_or(DerError)?;
    let value = encoded
        .iter()
        .fold(0_usize, |value, octet| value << 8 | usize::from(*octet));
    let fewest = encoded[0] != 0 && value >= 0x80;
    fewest.then_some((value, rest)).ok_or(DerError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_must_be_definite_and_minimal() {
        let read = |bytes: &[u8]| Reader::new(bytes).any().map(|(_, content)| content.len());
        assert_eq!(read(&[4, 2, 1, 1]), Ok(2));
        assert_eq!(read(&[&[4, 0x81, 0x80][..], &[0; 128]].concat()), Ok(128));
        for bad in [
            &[4][..],
            &[4, 2, 1],
            &[0x30, 0x80, 0, 0],
            &[4, 0x81, 1, 1],
            &[4, 0x82, 0, 0x80],
            &[4, 0x85, 0, 0, 0, 0, 1, 1],
            &[0x1f, 1, 1],
        ] {
            assert_eq!(read(bad), Err(DerError), "{bad:?}");
        }
    }
}
