//! Thrift's compact protocol, as far as Parquet's heads and footer need it.

use std::collections::BTreeMap;

/// Structures in structures at most.
const DEPTH_MAX: u32 = 16;
/// A node of the map that holds the fields of a structure, with room for eleven; a later one holds five of them at least.
const NODE_BYTES: usize = 64 + 11 * (size_of::<Value>() + size_of::<i16>());
const NODE_FIELDS_MIN: usize = 5;

/// What is read of a structure at most: it comes from anybody, and an element of one byte takes many in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Elements of each list.
    pub(super) elements_max: usize,
    /// Of all values together, in bytes.
    pub(super) memory_bytes_max: usize,
}

/// Why a structure is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    Damaged,
    /// A list is too long: that of this field, in so many lists and structures.
    List {
        depth: u32,
        field: i16,
        elements: usize,
    },
    /// The values would take too much memory.
    Memory,
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// A value of any type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Truth(bool),
    /// 32 bits.
    Integer(i64),
    /// 64 bits; read as [`Value::Integer`].
    Long(i64),
    Binary(Vec<u8>),
    List(Vec<Value>),
    Struct(Struct),
}

/// Fields by their numbers.
pub(super) type Struct = BTreeMap<i16, Value>;

/// A structure of these fields.
pub(super) fn fields<const COUNT: usize>(fields: [(i16, Value); COUNT]) -> Value {
    Value::Struct(fields.into_iter().collect())
}

impl Value {
    pub(super) fn text(text: &str) -> Value {
        Value::Binary(text.as_bytes().to_vec())
    }

    fn code(&self) -> u8 {
        match self {
            Value::Truth(true) => TRUE,
            Value::Truth(false) => FALSE,
            Value::Integer(_) => I32,
            Value::Long(_) => I64,
            Value::Binary(_) => BINARY,
            Value::List(_) => LIST,
            Value::Struct(_) => STRUCT,
        }
    }

    /// Writes it without its type.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Truth(_) => {}
            Value::Integer(value) | Value::Long(value) => write_zigzag(*value, out),
            Value::Binary(bytes) => {
                write_varint(bytes.len() as u64, out);
                out.extend(bytes);
            }
            Value::List(values) => {
                let code = values.first().map_or(STRUCT, Value::code);
                match values.len() {
                    length @ 0..15 => out.push((length as u8) << 4 | code),
                    length => {
                        out.push(0xf0 | code);
                        write_varint(length as u64, out);
                    }
                }
                for value in values {
                    value.write(out);
                }
            }
            Value::Struct(fields) => {
                let mut last = 0;
                for (number, value) in fields {
                    out.push(((number - last) as u8) << 4 | value.code());
                    value.write(out);
                    last = *number;
                }
                out.push(0);
            }
        }
    }
}

pub(super) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn write_zigzag(value: i64, out: &mut Vec<u8>) {
    write_varint(((value << 1) ^ (value >> 63)) as u64, out);
}

/// Reads a structure from the front of `bytes`, and how long it is.
pub(super) fn read(bytes: &[u8], bounds: Bounds) -> Result<(Struct, usize), Unreadable> {
    let mut front = Front {
        rest: bytes,
        elements_max: bounds.elements_max,
        memory_bytes_left: bounds.memory_bytes_max,
        why: Unreadable::Damaged,
    };
    let read = front.fields(DEPTH_MAX).ok_or(front.why)?;
    Ok((read, bytes.len() - front.rest.len()))
}

struct Front<'a> {
    rest: &'a [u8],
    elements_max: usize,
    memory_bytes_left: usize,
    /// What is wrong when nothing could be read.
    why: Unreadable,
}

impl Front<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, length) = read_varint(self.rest)?;
        self.rest = &self.rest[length..];
        Some(value)
    }

    fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn bytes(&mut self, length: usize) -> Option<Vec<u8>> {
        let (front, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        self.take_memory(length)?;
        Some(front.to_vec())
    }

    /// To be asked before anything is allocated.
    fn take_memory(&mut self, bytes: usize) -> Option<()> {
        let left = self.memory_bytes_left.checked_sub(bytes);
        match left {
            Some(left) => self.memory_bytes_left = left,
            None => self.why = Unreadable::Memory,
        }
        left.map(|_| ())
    }

    fn fields(&mut self, depth: u32) -> Option<Struct> {
        let mut found = Struct::new();
        let mut last = 0_i16;
        for number in 0_usize.. {
            let head = self.byte()?;
            if head == 0 {
                return Some(found);
            }
            last = match head >> 4 {
                0 => i16::try_from(self.integer()?).ok()?,
                delta => last.checked_add(delta.into())?,
            };
            if number.is_multiple_of(NODE_FIELDS_MIN) {
                self.take_memory(NODE_BYTES)?;
            }
            let value = self.value(head & 0x0f, depth, last)?;
            found.insert(last, value);
        }
        None
    }

    /// Of the field of this number.
    fn value(&mut self, code: u8, depth: u32, field: i16) -> Option<Value> {
        Some(match code {
            TRUE => Value::Truth(true),
            FALSE => Value::Truth(false),
            BYTE => Value::Integer((self.byte()? as i8).into()),
            I16 | I32 | I64 => Value::Integer(self.integer()?),
            DOUBLE => Value::Binary(self.bytes(8)?),
            BINARY => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Binary(self.bytes(length)?)
            }
            LIST | SET => self.list(depth.checked_sub(1)?, field)?,
            STRUCT => Value::Struct(self.fields(depth.checked_sub(1)?)?),
            _ => return None,
        })
    }

    fn list(&mut self, depth: u32, field: i16) -> Option<Value> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            length => length.into(),
        };
        // Each element has a byte at least.
        if length > self.rest.len() {
            return None;
        }
        if length > self.elements_max {
            self.why = Unreadable::List {
                depth: DEPTH_MAX - 1 - depth,
                field,
                elements: length,
            };
            return None;
        }
        self.take_memory(length * size_of::<Value>())?;
        let mut values = Vec::with_capacity(length);
        for _ in 0..length {
            values.push(match head & 0x0f {
                TRUE | FALSE => Value::Truth(self.byte()? == TRUE),
                code => self.value(code, depth, field)?,
            });
        }
        Some(Value::List(values))
    }
}

/// A varint and its length.
pub(super) fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

/// What a footer must have to be understood.
pub(super) trait Fields {
    fn integer(&self, number: i16) -> Option<i64>;
    fn list(&self, number: i16) -> Option<&[Value]>;
    fn structure(&self, number: i16) -> Option<&Struct>;
    fn text(&self, number: i16) -> Option<&str>;
}

impl Fields for Struct {
    fn integer(&self, number: i16) -> Option<i64> {
        match self.get(&number)? {
            Value::Integer(value) | Value::Long(value) => Some(*value),
            Value::Truth(_) | Value::Binary(_) | Value::List(_) | Value::Struct(_) => None,
        }
    }

    fn list(&self, number: i16) -> Option<&[Value]> {
        match self.get(&number)? {
            Value::List(values) => Some(values),
            _ => None,
        }
    }

    fn structure(&self, number: i16) -> Option<&Struct> {
        match self.get(&number)? {
            Value::Struct(fields) => Some(fields),
            _ => None,
        }
    }

    fn text(&self, number: i16) -> Option<&str> {
        match self.get(&number)? {
            Value::Binary(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}
