//! Mutation of documents as values: bytes alone seldom get past a parser.

use daemonlet::core::yaml;
use serde_json::Map;
use serde_json::Value;

mod words;

use words::FIELDS;
use words::WORDS;

/// Small random numbers; the same seed gives the same.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u32) -> Self {
        Self(u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next()).unwrap_or_default() % bound.max(1)
    }

    fn of(&mut self, list: &[&'static str]) -> &'static str {
        list[self.below(list.len())]
    }
}

/// Changes some value in one of the documents of `data`; `None`: it has none.
pub fn documents(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(data).ok()?;
    if text.len() > 64 << 10 {
        return None;
    }
    let mut values: Vec<Value> = yaml::read_documents(text).into_iter().filter_map(|d| d.value.ok()).collect();
    if values.is_empty() {
        return None;
    }
    let dice = &mut Dice::new(seed);
    for _ in 0..=dice.below(4) {
        let donor = values[dice.below(values.len())].clone();
        let at = dice.below(values.len());
        match dice.below(24) {
            0 if values.len() < 8 => values.push(donor),
            1 if values.len() > 1 => drop(values.remove(at)),
            _ => change(&mut values[at], &donor, dice),
        }
    }
    let json = dice.below(3) == 0;
    let texts = values.iter().map(|value| if json { format!("{value}\n") } else { yaml::write(value) });
    let text = texts.collect::<Vec<_>>().join(if json { "" } else { "---\n" });
    (text.len() <= max).then(|| text.into_bytes())
}

/// Changes something in `value`, at a random depth.
pub fn change(value: &mut Value, donor: &Value, dice: &mut Dice) {
    let deeper = dice.below(6) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let at = dice.below(map.len());
            if let Some((_, value)) = map.iter_mut().nth(at) {
                change(value, donor, dice);
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = dice.below(list.len());
            change(&mut list[at], donor, dice);
        }
        Value::Object(map) => match dice.below(4) {
            0 => {
                let key = map.keys().nth(dice.below(map.len())).cloned();
                key.and_then(|key| map.remove(&key));
            }
            1 => *value = small(donor, dice),
            _ => {
                let key = if dice.below(8) == 0 { dice.of(WORDS) } else { dice.of(FIELDS) };
                map.insert(key.to_owned(), small(donor, dice));
            }
        },
        Value::Array(list) => match dice.below(4) {
            0 if !list.is_empty() => drop(list.remove(dice.below(list.len()))),
            1 if !list.is_empty() => list.push(list[dice.below(list.len())].clone()),
            2 => *value = small(donor, dice),
            _ => list.push(small(donor, dice)),
        },
        Value::String(text) if dice.below(3) == 0 => {
            let at = dice.below(text.len() + 1);
            let at = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text.insert_str(at, dice.of(WORDS));
        }
        other => *other = small(donor, dice),
    }
}

/// A scalar, something small around one, or a part of `donor`.
fn small(donor: &Value, dice: &mut Dice) -> Value {
    match dice.below(16) {
        0 => Value::Null,
        1 => Value::Bool(true),
        2 => Value::Bool(false),
        3 => Value::from(
            [0, 1, -1, 2, 80, 443, 65535, 65536, 420, 511, 512, i64::MAX, i64::MIN, 2_147_483_648][dice.below(14)],
        ),
        4 => Value::from([0.5, 1e300, -1.0, 1e-300][dice.below(4)]),
        5 => Value::from(u64::MAX),
        6 => Value::Array(Vec::new()),
        7 => Value::Object(Map::new()),
        8 => Value::Array(vec![small(donor, dice)]),
        9 => Value::Object(Map::from_iter([(dice.of(FIELDS).to_owned(), small(donor, dice))])),
        10 => Value::from("x".repeat([64, 254, 5000][dice.below(3)])),
        11 | 12 => part(donor, dice),
        _ => Value::from(dice.of(WORDS)),
    }
}

fn part(donor: &Value, dice: &mut Dice) -> Value {
    let stop = dice.below(5) == 0;
    match donor {
        Value::Object(map) if !stop && !map.is_empty() => {
            map.values().nth(dice.below(map.len())).map_or(Value::Null, |value| part(value, dice))
        }
        Value::Array(list) if !stop && !list.is_empty() => part(&list[dice.below(list.len())], dice),
        other => other.clone(),
    }
}

/// As [`documents`], of JSON with one value a line.
pub fn lines(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    let lines = data.split(|byte| *byte == b'\n');
    let mut values: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    if values.is_empty() {
        return None;
    }
    let dice = &mut Dice::new(seed);
    for _ in 0..=dice.below(4) {
        let donor = values[dice.below(values.len())].clone();
        let at = dice.below(values.len());
        change(&mut values[at], &donor, dice);
    }
    let text: String = values.iter().map(|value| format!("{value}\n")).collect();
    (text.len() <= max).then(|| text.into_bytes())
}

/// `data` with a few bytes changed, by `seed`; `None`: leave it to the fuzzer.
pub fn bytes(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    if data.is_empty() || data.len() > max || seed.is_multiple_of(4) {
        return None;
    }
    let mut changed = data.to_vec();
    let mut random = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..1 + seed % 4 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = (random >> 16) as usize % changed.len();
        changed[at] ^= 1 << (random % 8);
    }
    Some(changed)
}
