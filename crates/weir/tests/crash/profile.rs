//! What a run does more or less of.

use fastrand::Rng;

/// How keys are made from numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    Short,
    /// From 1 to 3000 bytes.
    Mixed,
    Long,
    /// Ascending.
    Right,
}

/// A mix of operations and sizes.
#[derive(Debug)]
pub struct Profile {
    pub name: &'static str,
    pub keys: Keys,
    /// Different keys per table.
    pub key_count: u32,
    /// Longest body that is usual; `huge` of 256 are longer.
    pub body: usize,
    pub huge: u8,
    pub insert: u32,
    pub update: u32,
    pub delete: u32,
    pub read: u32,
    pub scan: u32,
    pub ddl: u32,
    pub background: u32,
    /// Writing transactions at once.
    pub open: usize,
    pub memory: u64,
    pub redo: u64,
    /// Operations until the power fails, at most.
    pub steps: u32,
    /// Rows written in one operation, at most.
    pub burst: u32,
    /// Of 256 transactions, how many end by being prepared.
    pub prepare: u8,
    /// Of 256 background steps, how many change the log's capacity...
    pub resize: u8,
    /// ... to anything from 1 MiB up to this.
    pub resize_to: u64,
}

const BASE: Profile = Profile {
    name: "small-rows",
    keys: Keys::Short,
    key_count: 400,
    body: 60,
    huge: 1,
    insert: 30,
    update: 20,
    delete: 15,
    read: 8,
    scan: 3,
    ddl: 1,
    background: 12,
    open: 4,
    memory: 3 << 20,
    redo: 1 << 20,
    steps: 400,
    burst: 8,
    prepare: 5,
    resize: 4,
    resize_to: 3 << 20,
};

const PROFILES: [Profile; 12] = [
    BASE,
    Profile {
        name: "big-rows",
        keys: Keys::Mixed,
        key_count: 150,
        body: 6000,
        huge: 60,
        steps: 150,
        burst: 3,
        ..BASE
    },
    Profile { name: "hot-keys", key_count: 6, body: 300, huge: 8, update: 50, ..BASE },
    Profile {
        name: "delete-heavy",
        keys: Keys::Mixed,
        key_count: 300,
        body: 900,
        delete: 50,
        burst: 20,
        ..BASE
    },
    Profile {
        name: "right-edge",
        keys: Keys::Right,
        key_count: 100_000,
        body: 200,
        insert: 60,
        update: 8,
        burst: 40,
        ..BASE
    },
    Profile {
        name: "definitions",
        keys: Keys::Mixed,
        key_count: 120,
        body: 700,
        ddl: 14,
        huge: 6,
        steps: 200,
        ..BASE
    },
    Profile {
        name: "little-memory",
        keys: Keys::Mixed,
        key_count: 700,
        body: 5000,
        memory: 2 << 20,
        burst: 12,
        steps: 200,
        ..BASE
    },
    Profile {
        name: "little-redo",
        keys: Keys::Mixed,
        key_count: 300,
        body: 3000,
        huge: 20,
        background: 25,
        burst: 12,
        ..BASE
    },
    // Builds of indexes that take more memory than they have, and sort in files.
    Profile {
        name: "index-builds",
        keys: Keys::Long,
        key_count: 700,
        body: 100,
        insert: 60,
        delete: 3,
        ddl: 8,
        burst: 80,
        open: 2,
        steps: 60,
        ..BASE
    },
    Profile {
        name: "two-phase",
        keys: Keys::Mixed,
        key_count: 150,
        body: 1500,
        huge: 12,
        open: 6,
        prepare: 150,
        ddl: 2,
        ..BASE
    },
    // The log's capacity goes up and down while it fills.
    Profile {
        name: "capacity",
        keys: Keys::Mixed,
        key_count: 200,
        body: 5000,
        huge: 20,
        background: 40,
        burst: 12,
        resize: 60,
        resize_to: 12 << 20,
        ..BASE
    },
    Profile { name: "long-keys", keys: Keys::Long, key_count: 200, body: 400, ..BASE },
];

/// The name of all that are drawn.
const DRAWN: &str = "drawn";

impl Profile {
    /// Of that name, for a seed.
    pub fn named(name: &str, seed: u64) -> &'static Profile {
        if name == DRAWN {
            return Profile::drawn(seed);
        }
        PROFILES.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no profile `{name}`"))
    }

    /// The profiles in turn, then one that is drawn.
    pub fn of(seed: u64) -> &'static Profile {
        let turn = seed as usize % (PROFILES.len() + 1);
        PROFILES.get(turn).unwrap_or_else(|| Profile::drawn(seed))
    }

    /// A mix that nobody thought of.
    fn drawn(seed: u64) -> &'static Profile {
        let mut rng = Rng::with_seed(!seed);
        let keys = [Keys::Short, Keys::Mixed, Keys::Long, Keys::Right][rng.usize(..4)];
        let profile = Profile {
            name: DRAWN,
            keys,
            key_count: match keys {
                Keys::Right => 100_000,
                _ => 3 << rng.u32(..9),
            },
            body: 8 << rng.u32(..10),
            huge: rng.u8(..) >> rng.u32(1..8),
            insert: rng.u32(5..60),
            update: rng.u32(..60),
            delete: rng.u32(..60),
            read: rng.u32(..10),
            scan: rng.u32(..5),
            ddl: rng.u32(..16) >> rng.u32(..5),
            background: rng.u32(..50),
            open: rng.usize(1..9),
            memory: rng.u64(2 << 20..5 << 20),
            redo: rng.u64(1..4) << 20,
            steps: rng.u32(50..400),
            burst: 1 << rng.u32(..6),
            prepare: rng.u8(..) >> rng.u32(..8),
            resize: rng.u8(..) >> rng.u32(2..8),
            resize_to: rng.u64(2..12) << 20,
        };
        // Once for each seed.
        Box::leak(Box::new(profile))
    }

    /// The `n`-th key: the same bytes for the same number.
    pub fn key(&self, n: u32) -> Vec<u8> {
        let mut rng = Rng::with_seed(u64::from(n) + 77);
        let filler = match self.keys {
            Keys::Short => rng.usize(..8),
            Keys::Right => return format!("{n:08}").into_bytes(),
            Keys::Mixed => match rng.u8(..8) {
                0 if n < 200 => return vec![n as u8 + 1],
                0..5 => rng.usize(..40),
                5 | 6 => rng.usize(..300),
                _ => rng.usize(..2990),
            },
            Keys::Long => rng.usize(1000..2990),
        };
        let mut key = vec![b'p'; if rng.bool() { filler } else { 0 }];
        key.extend_from_slice(format!("{n:06}").as_bytes());
        key.resize(filler + 6, b'f');
        key
    }

    /// Contents of a row.
    pub fn body(&self, rng: &mut Rng) -> Vec<u8> {
        let len = match rng.u8(..) {
            x if x < self.huge => rng.usize(..60_000),
            x if x < 128 => rng.usize(..=self.body / 8),
            _ => rng.usize(..=self.body),
        };
        let mut body = vec![0; len];
        let random = if rng.bool() { len } else { len.min(40) };
        rng.fill(&mut body[..random]);
        if random < len {
            (random..len).for_each(|i| body[i] = body[i % random.max(1)]);
        }
        body
    }
}
