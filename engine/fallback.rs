//! The greedy lexeme fallback: maximal munch that can return to where it last could have stopped.
//!
//! The stock lexer follows the longest match and forgets that a shorter one was complete; when the
//! longer one dies, so does the input. Here the newest accepting position of the current lexeme,
//! its *boundary*, is remembered. When the lexer dies, the lexeme that ended at the boundary goes to
//! the parser, and the bytes after it are read again in the context that follows. The same may
//! happen within that reading, and so on. A later accepting position replaces the older for good.
//!
//! # The stack keeps the longer reading
//!
//! Every byte leaves one entry on `lexer_stack`, and a fallback is no exception: the byte that
//! killed the longer reading pushes one entry, a *jump*, which names the row and the lexer state
//! that the other reading has reached. The entries below it are left as the longer reading wrote
//! them. So popping bytes while a trie is walked, and rolling tokens back, restore the longer
//! reading with no undo record: they cut the stack, as ever. Rows need none either: the longer
//! reading was in the middle of a lexeme, so no row above its own was in use.
//!
//! What the stack does not say about a jump is kept in a [`Mark`].
//!
//! # Levels
//!
//! Level 0 is the reading on the stack. Level `k + 1` is how the bytes read once level `k` has
//! fallen back from its boundary. All levels share one table of rows: each level's rows are a
//! prefix of the next one's, because a reading whose boundary is pending has no row above the one
//! its current lexeme began in.
//!
//! Levels come about in two ways. While the bytes after a boundary are few (`threshold`), a level is
//! read when first needed, and stays until a byte is committed: once for all the walks of a mask.
//! When they are more, the level is made once and then read on with every committed byte, so that no
//! step ever reads more than `threshold` bytes and those of one token, whatever the lexeme's length;
//! the threshold is one of the parser's limits.
//!
//! A walk that emits a lexeme from a shallow level writes rows where deeper levels have theirs.
//! Those few rows are put aside (`displaced`) and put back before a level is used again; items are
//! always written above the levels' own.

use toktrie::TrieNode;

use super::super::regexvec::DeadEnd;
use super::*;

/// More levels than this are not passed through one by one at each byte of a walk.
const MANY: usize = 16;

/// How many levels are asked whether they allow a whole slice of the vocabulary.
const SLICED_LEVELS: usize = 2;

/// Work done by the fallback since the parser was created.
#[derive(Clone, Debug, Default)]
pub struct FallbackStats {
    /// Boundaries whose lexeme was given to the parser, committed or not.
    pub recoveries: usize,
    /// Bytes read again in another context.
    pub reread_bytes: usize,
    /// Committed bytes at which the parser changed to another reading.
    pub promotions: usize,
    /// Levels made to be kept in step.
    pub snapshots: usize,
    /// Bytes of input that the levels were kept in step with.
    pub synced_bytes: usize,
}

/// A position at which the current lexeme could have ended.
#[derive(Clone, Copy)]
struct Boundary {
    /// Index in the lexer stack of the lexeme's last byte.
    at: usize,
    /// The accepting state there.
    state: StateID,
}

/// Where one way of reading the bytes on the stack has arrived.
#[derive(Clone, Copy)]
struct Reading {
    top: LexerState,
    /// Index in the lexer stack of the current lexeme's first byte, read or to come.
    lexeme_from: usize,
    /// The newest boundary of the current lexeme; none while `top` itself accepts.
    boundary: Option<Boundary>,
    next: Next,
}

/// What can follow the bytes that a reading has read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Bytes,
    /// Nothing: a stop lexeme has just matched, and gives so many bytes back.
    GivenBack(usize),
    /// Nothing: the reading is dead, and has no boundary to fall back to.
    Nothing,
}

impl Reading {
    fn of(top: LexerState, lexeme_from: usize, boundary: Option<Boundary>) -> Self {
        Reading {
            top,
            lexeme_from,
            boundary,
            next: Next::Bytes,
        }
    }

    /// A dead one, above the rows up to `row_idx`.
    fn dead(row_idx: u32) -> Self {
        let top = LexerState {
            row_idx,
            lexer_state: StateID::DEAD,
            byte: None,
        };
        Reading {
            next: Next::Nothing,
            ..Self::of(top, usize::MAX, None)
        }
    }

    fn goes_on(&self) -> bool {
        self.next == Next::Bytes
    }
}

/// What the entry at `at`, which is of the lexeme of `row_idx`, changed besides the stack.
#[derive(Clone)]
struct Mark {
    at: usize,
    row_idx: u32,
    change: Change,
}

#[derive(Clone)]
enum Change {
    /// The byte is the first one past a boundary.
    Passed(Boundary),
    /// The boundary that was pending is lost: the lexeme could end here, or could not before here.
    Lost,
    /// The byte was read after a fallback.
    Jump(Jump),
}

#[derive(Clone)]
struct Jump {
    /// Index in the lexer stack of the first byte of the lexeme that it landed in.
    lexeme_from: usize,
    /// What is pending in that lexeme.
    boundary: Option<Boundary>,
    /// In a trie walk, the level that it landed in; 0 for what is committed.
    level: usize,
}

impl Mark {
    fn boundary(&self) -> Option<Boundary> {
        match &self.change {
            Change::Passed(boundary) => Some(*boundary),
            Change::Lost => None,
            Change::Jump(jump) => jump.boundary,
        }
    }

    fn jump(&self) -> Option<&Jump> {
        match &self.change {
            Change::Jump(jump) => Some(jump),
            _ => None,
        }
    }
}

/// How long a level is good.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Term {
    /// It is read on with every committed byte.
    InStep,
    /// Until something is committed: made in a trie walk, without row infos and captures.
    OfWalk,
}

#[derive(Clone)]
struct Level {
    reading: Reading,
    /// Captures made since the boundary; the parser's own once the level is promoted.
    captures: Captures,
    term: Term,
}

impl Level {
    /// A level that is kept in step and has captured nothing.
    fn kept(reading: Reading) -> Self {
        Level {
            reading,
            captures: Captures::new(),
            term: Term::InStep,
        }
    }

    fn has_captured(&self) -> bool {
        !self.captures.capture_list.is_empty()
    }
}

/// The readings of the levels when the stack had `base` entries. Their rows are still there.
#[derive(Clone)]
struct Snapshot {
    base: usize,
    readings: Vec<Reading>,
}

/// Which states of the lexer the readings above a level are in, at one byte.
#[derive(Clone, Default)]
struct StatesSeen {
    few: Vec<StateID>,
    /// By state, the number of the byte at which it was seen last; used where levels are many.
    many: Vec<u32>,
    number: u32,
    are_many: bool,
}

impl StatesSeen {
    fn begin(&mut self, levels: usize) {
        self.few.clear();
        self.are_many = levels > MANY;
        self.number = self.number.wrapping_add(1);
        if self.number == 0 {
            self.many.clear();
            self.number = 1;
        }
    }

    fn has(&self, state: StateID) -> bool {
        match self.are_many {
            true => self.many.get(state.as_usize()) == Some(&self.number),
            false => self.few.contains(&state),
        }
    }

    fn add(&mut self, state: StateID) {
        if self.are_many {
            let index = state.as_usize();
            if self.many.len() <= index {
                self.many.resize(index + 1, 0);
            }
            self.many[index] = self.number;
        } else {
            self.few.push(state);
        }
    }
}

/// Where the last fallback of a walk stood before its byte. The bytes that follow one prefix are
/// tried one after another, and most die: what they share is read once.
#[derive(Clone)]
struct Siblings {
    /// The bytes that the walk has pushed.
    path: Vec<u8>,
    /// None where all readings die within the path.
    reading: Option<(Reading, usize)>,
    /// Known once it was needed: bytes outside of it end all readings.
    going_on: Option<ByteSet>,
}

/// What the lexer alone knows of a level's reading in a walk.
#[derive(PartialEq, Eq)]
enum Fate {
    /// It ends within the bytes, and no newer boundary is in them.
    Dies,
    /// It is in the middle of its lexeme.
    Lives(StateID),
    /// A lexeme could end within the bytes.
    Open,
}

#[derive(Clone, Copy, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn all() -> Self {
        ByteSet([u64::MAX; 4])
    }

    fn only(byte: u8) -> Self {
        let mut set = ByteSet::default();
        set.0[usize::from(byte) / 64] = 1 << (byte % 64);
        set
    }

    fn of(mut has: impl FnMut(u8) -> bool) -> Self {
        let mut set = ByteSet::default();
        for (word, first) in set.0.iter_mut().zip([0, 64, 128, 192]) {
            for bit in 0..64 {
                *word |= u64::from(has(first + bit)) << bit;
            }
        }
        set
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte) / 64] >> (byte % 64) & 1 == 1
    }

    fn add(&mut self, other: ByteSet) {
        for (mine, its) in self.0.iter_mut().zip(other.0) {
            *mine |= its;
        }
    }
}

/// What a trie walk knows, and what is to be put right when it ends.
#[derive(Clone, Default)]
struct Walk {
    /// Once a first byte has killed the reading on the stack: those that do not end all readings.
    going_on_first: Option<ByteSet>,
    siblings: Option<Siblings>,
    /// Rows of levels that were written over.
    displaced: Vec<(usize, Row)>,
    leaves: Leaves,
}

/// What a walk leaves behind.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Leaves {
    #[default]
    Nothing,
    /// Marks, displaced rows, or what is known of siblings.
    Traces,
    /// As well a level that points at grammar stack nodes, which end with the walk.
    FleetingLevel,
}

/// The lexeme that the parser is being given: its row, and where its bytes are on the stack.
#[derive(Clone, Copy)]
struct Fed {
    row_idx: u32,
    from: usize,
    to: usize,
}

#[derive(Clone, Default)]
pub(super) struct Fallback {
    pub(super) on: bool,
    marks: Vec<Mark>,
    levels: Vec<Level>,
    /// By position; for rollbacks.
    snapshots: Vec<Snapshot>,
    walk: Walk,
    seen: StatesSeen,
    /// The bytes that a state survives, once they were asked for.
    alive: HashMap<StateID, ByteSet>,
    /// Rows and items below these belong to a level; 0 where there is none.
    rows_end: usize,
    pub(super) items_end: usize,
    /// The same for those rows that have an info: not those of levels made in a walk.
    row_infos_end: usize,
    /// Rows below this are a level's or those of the walk's siblings.
    rows_in_use: usize,
    fed: Option<Fed>,
    /// How far behind the committed bytes the byte that is being read lies.
    pub(super) lag: usize,
    stats: FallbackStats,
}

/// What became of a byte that was to be committed.
enum Commit {
    Refused,
    Done,
    /// It was, and the levels are to follow.
    LevelsBehind,
}

impl Fallback {
    pub(super) fn new(on: bool) -> Self {
        Fallback {
            on,
            ..Default::default()
        }
    }
}

/// What is known of the next byte without trying any.
enum Hints {
    /// It is this one, or there is more than one.
    Forced(Option<u8>),
    /// It has to be tried; these are likely.
    Try(Vec<u8>),
}

/// Keeps the bytes of a reading's lexeme apart from the stack below, see `feed()`.
const SEPARATOR: LexerState = LexerState {
    row_idx: u32::MAX,
    lexer_state: StateID::DEAD,
    byte: None,
};

// What parser.rs calls.
impl ParserState {
    /// `try_push_byte_definitive()` with the fallback on.
    #[inline(never)]
    pub(super) fn push_byte_or_fall_back(&mut self, byte: Option<u8>) -> (bool, usize) {
        if self.is_cancelled() {
            return (false, 0);
        }
        assert!(self.scratch.definitive);
        let curr = self.lexer_state();
        let lexer = self.shared_box.lexer_mut();
        let res = match byte {
            Some(byte) => {
                self.stats.definitive_bytes += 1;
                lexer.advance(curr.lexer_state, byte, true, &self.cancellation)
            }
            None => lexer.force_lexeme_end(curr.lexer_state),
        };
        let commit = self.commit(res, curr, byte);
        if matches!(commit, Commit::Refused) {
            return (false, 0);
        }
        if let Some(byte) = byte {
            self.bytes.push(byte);
        }
        if matches!(commit, Commit::LevelsBehind) {
            self.sync_levels();
        }
        let given_back = std::mem::take(&mut self.backtrack_byte_count);
        if given_back > 0 {
            self.last_force_bytes_len = usize::MAX;
            self.bytes.truncate(self.bytes.len() - given_back);
        }
        (true, given_back)
    }

    /// The limits of a mask or a forced run. Two readings are open, each of which may need what
    /// stock allows to one.
    pub(super) fn limits_of_step(&self) -> ParserLimits {
        let mut limits = self.limits.clone();
        if self.fallback.on {
            limits.step_max_items = limits.step_max_items.saturating_mul(2);
            limits.step_lexer_fuel = limits.step_lexer_fuel.saturating_mul(2);
            limits.max_lexer_states = limits.max_lexer_states.saturating_mul(2);
        }
        limits
    }

    /// To be called where not just the parser's own rows have infos.
    #[inline(never)]
    pub(super) fn assert_row_infos_of_levels(&self) {
        let (rows, levels) = (self.num_rows(), self.fallback.row_infos_end);
        let infos = self.row_infos.len();
        assert!(
            infos == rows.max(levels),
            "num_rows={rows} levels={levels} row_infos={infos}"
        );
    }

    /// Called once the stack was cut to roll tokens back; cuts the row infos as well.
    #[inline(never)]
    pub(super) fn roll_fallback_back(&mut self) {
        // The cache is keyed by position, and other bytes may come to stand there.
        self.bias_cache = None;
        let base = self.lexer_stack.len();
        self.forget_marks(base);
        self.fallback.levels.clear();
        let snapshots = &mut self.fallback.snapshots;
        while snapshots
            .last()
            .is_some_and(|snapshot| snapshot.base > base)
        {
            snapshots.pop();
        }
        // What is to be read again must be of the one reading that is on the stack.
        let since = self.fallback.marks.last().map_or(0, |mark| mark.at + 1);
        let known = self
            .fallback
            .snapshots
            .last()
            .filter(|known| known.base >= since);
        let from = match known {
            Some(known) if self.committed_boundary(base).is_some() => {
                self.fallback.levels = known.readings.iter().copied().map(Level::kept).collect();
                known.base
            }
            _ => base,
        };
        self.note_levels_end();
        for base in from + 1..=base {
            self.bring_levels_to(base);
        }
        self.apart(|state| state.make_due_levels(base));
    }

    /// To be called when a trie walk has put the stack back.
    #[inline(always)]
    pub(super) fn end_fallback_walk(&mut self) {
        let leaves = std::mem::take(&mut self.fallback.walk.leaves);
        if leaves != Leaves::Nothing {
            self.clean_up_after_walk(leaves);
        }
    }

    #[inline(never)]
    fn clean_up_after_walk(&mut self, leaves: Leaves) {
        self.fallback.walk.siblings = None;
        self.fallback.walk.going_on_first = None;
        self.put_rows_back();
        self.forget_marks(self.lexer_stack.len());
        if leaves == Leaves::FleetingLevel {
            self.drop_walk_levels();
        }
    }

    /// To be called where a walk leaves something behind; what is committed stays.
    fn note_walk(&mut self, leaves: Leaves) {
        if !self.scratch.definitive {
            self.fallback.walk.leaves = self.fallback.walk.leaves.max(leaves);
        }
    }

    /// Whether a boundary is pending below a top that does not accept.
    #[inline(always)]
    pub(super) fn fallback_pending(&self) -> bool {
        self.fallback.on
            && self.dead_end_of(self.lexer_state()) == DeadEnd::FallBack
            && self.newest_boundary().is_some()
    }

    /// Tells apart the states between which the lexer's state and the row do not; empty where no
    /// boundary is pending.
    ///
    /// A level's rows only ever grow, so the boundary it began at and its row identify them. A
    /// level that is not kept in step is known by the position alone.
    pub(super) fn fallback_key(&self) -> Vec<u32> {
        if !self.fallback_pending() {
            return vec![];
        }
        let mut key = vec![];
        let mut boundary = self.newest_boundary().map(|(boundary, _)| boundary);
        for level in self.kept_levels() {
            key.push(boundary.map_or(u32::MAX, |boundary| boundary.at as u32));
            key.push(level.reading.top.row_idx);
            key.push(level.reading.top.lexer_state.as_u32());
            key.push(u32::from(level.reading.top.byte.is_some()));
            boundary = level.reading.boundary;
        }
        if boundary.is_some() {
            key.push(self.lexer_stack.len() as u32);
        }
        key
    }

    /// `flush_lexer()` with the fallback on: the lexeme ends here or, if it cannot and a boundary is
    /// pending, there, and the rest is read to the end. As on stock, it pushes one entry.
    #[inline(never)]
    pub(super) fn flush_or_fall_back(&mut self) -> bool {
        // Where the lexeme cannot end here, what a level emitted from its row is still of use.
        let top = self.lexer_state();
        if self.accepts(top) {
            self.forget_lexeme(top.row_idx);
        }
        self.flush_on_stock() || self.fallback_pending() && self.flush_fallback()
    }

    fn flush_fallback(&mut self) -> bool {
        // Definitively there is no way back, so it is tried out first.
        let definitive = self.scratch.definitive;
        if definitive {
            if !self.run_speculative("fallback_flush", |s| s.flush_fallback()) {
                return false;
            }
            self.drop_walk_levels();
        }
        let Some((mut reading, level)) = self.reading_to_end() else {
            return false;
        };
        let end = self.lexer_stack.len();
        if self.accepts(reading.top) {
            let lexeme = self.lexer_mut().try_lexeme_end(reading.top.lexer_state);
            if !self.feed(&mut reading, lexeme, end) {
                return false;
            }
        }
        self.lexer_stack.push(LexerState {
            byte: None,
            ..reading.top
        });
        self.lexer_stack_flush_position = end;
        if definitive {
            self.promote(level);
            self.keep_levels(0);
        }
        true
    }

    /// `lexer_allows_eos()` where a boundary is pending.
    pub(super) fn fallback_allows_eos(&mut self) -> bool {
        if self.lexer_spec().eos_ending_lexemes().is_empty() {
            return false;
        }
        self.run_speculative("fallback_eos", |state| {
            let Some((reading, _)) = state.reading_to_end() else {
                return false;
            };
            state.accepts(reading.top) && state.lexer_mut().allows_eos(reading.top.lexer_state)
        })
    }

    /// `forced_byte()` where a boundary is pending: the byte on which all open readings agree.
    pub(super) fn forced_byte_of_readings(&mut self) -> Option<u8> {
        let byte = self.run_speculative("forced_byte", |state| match state.forced_by_hints() {
            Hints::Forced(byte) => byte,
            Hints::Try(bytes) => state.forced_by_trial(&bytes),
        });
        // A special token cannot be forced in the middle of a lexeme.
        byte.filter(|&byte| byte != TokTrie::SPECIAL_TOKEN_MARKER)
    }

    /// What the lexer's own hints say of all readings together. They are trusted as on stock.
    fn forced_by_hints(&mut self) -> Hints {
        let base = self.base();
        let mut state = self.lexer_state().lexer_state;
        let mut boundary = self.committed_boundary(base);
        let mut found = None;
        for level in 1.. {
            match self.lexer_mut().next_byte(state) {
                NextByte::Dead => {}
                NextByte::ForcedByte(byte) => {
                    if found.is_some_and(|other| other != byte) {
                        return Hints::Forced(None);
                    }
                    found = Some(byte);
                }
                hint => {
                    let mut bytes: Vec<u8> = found.into_iter().collect();
                    bytes.extend_from_slice(hint.some_bytes());
                    return Hints::Try(bytes);
                }
            }
            if boundary.is_none() {
                break;
            }
            let reading = self.level(level, base);
            if !reading.goes_on() {
                break;
            }
            (state, boundary) = (reading.top.lexer_state, reading.boundary);
        }
        Hints::Forced(found)
    }

    /// The only byte that can follow, `likely` ones tried first.
    fn forced_by_trial(&mut self, likely: &[u8]) -> Option<u8> {
        let mut found = None;
        let others = (0..=255).filter(|byte| !likely.contains(byte));
        for byte in likely.iter().copied().chain(others) {
            if found != Some(byte) && self.try_push_byte_or_fall_back(byte) {
                self.pop_lexer_states(1);
                if found.is_some() {
                    return None;
                }
                found = Some(byte);
            }
        }
        found
    }

    /// Makes way for a row that is about to be written over.
    #[inline(always)]
    pub(super) fn displace_row(&mut self, idx: usize) {
        if idx < self.fallback.rows_in_use {
            self.displace_row_in_use(idx);
        }
    }

    #[inline(never)]
    fn displace_row_in_use(&mut self, idx: usize) {
        self.fallback.walk.siblings = None;
        self.note_walk(Leaves::Traces);
        if idx < self.fallback.rows_end && !self.scratch.definitive {
            let displaced = &mut self.fallback.walk.displaced;
            if !displaced.iter().any(|(known, _)| *known == idx) {
                displaced.push((idx, self.rows[idx].clone()));
            }
        }
    }

    /// The bytes of the current lexeme where the entries of its row are not all it has.
    #[inline(always)]
    pub(super) fn bytes_of_lexeme(&self) -> Option<Vec<u8>> {
        let fallback = &self.fallback;
        if !fallback.on || fallback.fed.is_none() && fallback.marks.is_empty() {
            return None;
        }
        self.bytes_of_marked_lexeme()
    }

    fn bytes_of_marked_lexeme(&self) -> Option<Vec<u8>> {
        let row_idx = self.lexer_state().row_idx;
        match self.fallback.fed {
            Some(fed) if fed.row_idx == row_idx => Some(self.bytes_between(fed.from, fed.to)),
            _ => {
                let from = self.jump_in_lexeme(row_idx)?;
                Some(self.bytes_between(from, self.lexer_stack.len()))
            }
        }
    }

    pub(super) fn try_push_byte_or_fall_back(&mut self, byte: u8) -> bool {
        FallbackRecognizer { state: self }.try_push_byte(byte)
    }

    // The ways in which a walk leaves a lexeme are called cold: registers then are saved where they
    // are called, and not at every byte.

    /// Whether it is known that the first byte of a walk ends all readings, as most do.
    #[inline(always)]
    fn no_reading_begins_with(&self, byte: u8) -> bool {
        let known = &self.fallback.walk.going_on_first;
        self.lexer_stack.len() == self.trie_lexer_stack
            && known.as_ref().is_some_and(|going_on| !going_on.has(byte))
    }

    /// Pushes a byte that kills the lexer in a state that is past an accepting one, and is not known
    /// to begin no reading.
    #[cold]
    #[inline(never)]
    fn push_past_boundary(&mut self, byte: u8) -> bool {
        if self.lexer_stack.len() == self.trie_lexer_stack
            && self.fallback.walk.going_on_first.is_none()
            && self.newest_boundary().is_some()
        {
            self.note_walk(Leaves::Traces);
            self.fallback.walk.going_on_first = Some(self.bytes_going_on(1));
            if self.no_reading_begins_with(byte) {
                return false;
            }
        }
        match self.known_siblings().map(|known| known.reading) {
            None => self.fall_back(byte),
            Some(None) => false,
            Some(Some((reading, level))) => self.push_as_siblings(reading, level, byte),
        }
    }

    /// Pushes a byte where it is known what reading its siblings fall back to.
    fn push_as_siblings(&mut self, mut reading: Reading, level: usize, byte: u8) -> bool {
        let state = reading.top.lexer_state;
        let lexer = self.shared_box.lexer_mut();
        let next = lexer
            .dfa
            .transition_with_cancellation(state, byte, &self.cancellation);
        if next.is_dead() {
            // As most do, plainly.
            let rejected = lexer.dfa.dead_end(state) == DeadEnd::Reject
                || self.has_many_levels(level) && self.many_levels_reject(level, byte);
            return !rejected && self.fall_back(byte);
        }
        if next.has_lowest_match() || !reading.goes_on() {
            return self.fall_back(byte);
        }
        // It goes on in the middle of a lexeme, as most of the others do.
        self.fallback.stats.reread_bytes += 1;
        let at = self.lexer_stack.len();
        self.read_on(&mut reading, next, byte, at);
        self.lexer_stack.push(reading.top);
        self.mark_jump(at, reading, level);
        true
    }

    /// Pushes a byte that kills the lexer in a state that accepts.
    #[cold]
    #[inline(never)]
    fn push_after_lexeme(&mut self, state: StateID, byte: u8) -> bool {
        self.lexer().dfa.may_begin_with(byte)
            && self.advance_parser(PreLexeme {
                idx: MatchingLexemesIdx::GreedyAccepting(state),
                byte: Some(byte),
                byte_next_row: true,
            })
    }

    /// Pushes the last byte of a lazy lexeme, or of a special token.
    #[cold]
    #[inline(never)]
    fn push_lazy_lexeme(&mut self, next: StateID, byte: u8) -> bool {
        if self.lexer().dfa.state_desc(next).has_special_token {
            return self.special_pre_lexeme(next);
        }
        self.advance_parser(PreLexeme {
            idx: MatchingLexemesIdx::LazyAccepting(next),
            byte: Some(byte),
            byte_next_row: false,
        })
    }
}

// Boundaries.
impl ParserState {
    /// Whether the lexeme that `entry` is in could end there. An empty one cannot.
    #[inline(always)]
    fn accepts(&self, entry: LexerState) -> bool {
        entry.byte.is_some() && self.accepts_in(entry.lexer_state)
    }

    #[inline(always)]
    fn accepts_in(&self, state: StateID) -> bool {
        self.lexer().dfa.dead_end(state) == DeadEnd::Emit
    }

    /// What becomes of a lexeme in which `entry` is the last byte, once a byte kills the lexer.
    #[inline(always)]
    fn dead_end_of(&self, entry: LexerState) -> DeadEnd {
        self.lexer().dfa.dead_end(entry.lexer_state)
    }

    /// The number of entries that are committed.
    fn base(&self) -> usize {
        if self.scratch.definitive {
            self.lexer_stack.len()
        } else {
            self.trie_lexer_stack
        }
    }

    /// The boundary below the entry at `at`, that of `byte`; none where a lexeme that ended there
    /// could not be followed by the byte.
    fn boundary_before(&self, at: usize, state: StateID, byte: u8) -> Option<Boundary> {
        let useful = self.lexer().dfa.may_begin_with(byte);
        useful.then_some(Boundary { at: at - 1, state })
    }

    /// The newest boundary of the lexeme on the top of the stack, whose top does not accept, and
    /// the level that it belongs to.
    fn newest_boundary(&self) -> Option<(Boundary, usize)> {
        let base = self.base();
        let row_idx = self.lexer_state().row_idx;
        // What a walk has pushed is searched; what is committed was marked.
        for at in (base..self.lexer_stack.len()).rev() {
            let below = self.lexer_stack[at - 1];
            if below.row_idx != row_idx {
                let jump = self.jump_at(at)?;
                return jump.boundary.map(|boundary| (boundary, jump.level));
            }
            if self.accepts(below) {
                let byte = self.lexer_stack[at].byte?;
                let boundary = self.boundary_before(at, below.lexer_state, byte)?;
                return Some((boundary, 0));
            }
        }
        self.committed_boundary(base).map(|boundary| (boundary, 0))
    }

    /// The boundary pending at the committed entry below `base`.
    fn committed_boundary(&self, base: usize) -> Option<Boundary> {
        let top = self.lexer_stack[base - 1];
        let marks = &self.fallback.marks;
        let mark = marks.iter().rev().find(|mark| mark.at < base)?;
        if mark.row_idx != top.row_idx || self.accepts(top) {
            return None;
        }
        mark.boundary()
    }

    /// The jump that pushed the entry at `at`, the first one of its row.
    ///
    /// Popping leaves the marks of a walk behind, so the entry itself must look like a jump: it
    /// began a lexeme with its byte, though the entry below could not end one.
    fn jump_at(&self, at: usize) -> Option<&Jump> {
        let below = self.lexer_stack[at.checked_sub(1)?];
        let begins = self.lexer_stack[at].byte.is_some();
        if !begins || self.accepts(below) || below.row_idx == SEPARATOR.row_idx {
            return None;
        }
        let marks = &self.fallback.marks;
        let found = marks.iter().rev().find(|mark| mark.at <= at)?;
        found.jump().filter(|_| found.at == at)
    }

    fn first_of_row(&self, at: usize) -> usize {
        let row_idx = self.lexer_stack[at].row_idx;
        let others = self.lexer_stack[..at].iter().rev();
        at - others.take_while(|entry| entry.row_idx == row_idx).count()
    }

    /// The index of the first byte of the lexeme that the committed entry at `at` is in.
    fn lexeme_start(&self, at: usize) -> usize {
        // Rows never decrease along what is committed.
        let row_idx = self.lexer_stack[at].row_idx;
        let first = self.lexer_stack[..=at].partition_point(|entry| entry.row_idx < row_idx);
        match self.jump_at(first) {
            Some(jump) => jump.lexeme_from,
            None => first + usize::from(self.lexer_stack[first].byte.is_none()),
        }
    }

    /// Where the current lexeme began, if it was jumped into.
    fn jump_in_lexeme(&self, row_idx: u32) -> Option<usize> {
        if !self.scratch.definitive {
            let top = self.lexer_stack.len() - 1;
            let first = self.first_of_row(top);
            return self.jump_at(first).map(|jump| jump.lexeme_from);
        }
        let marks = self.fallback.marks.iter().rev();
        let mut of_row = marks.take_while(|mark| mark.row_idx == row_idx);
        of_row.find_map(|mark| mark.jump().map(|jump| jump.lexeme_from))
    }

    fn bytes_between(&self, from: usize, to: usize) -> Vec<u8> {
        // Where tokens can be rolled back, each committed byte has one entry, after the first.
        let mut bytes = Vec::with_capacity(to.saturating_sub(from) + 1);
        if self.lexer_spec().can_rollback()
            && (1..=to).contains(&from)
            && to <= self.bytes.len() + 1
        {
            bytes.extend_from_slice(&self.bytes[from - 1..to - 1]);
        } else if from < to {
            bytes.extend(
                self.lexer_stack[from..to]
                    .iter()
                    .filter_map(|entry| entry.byte),
            );
        }
        bytes
    }

    fn forget_marks(&mut self, from: usize) {
        let marks = &mut self.fallback.marks;
        while marks.last().is_some_and(|mark| mark.at >= from) {
            marks.pop();
        }
    }
}

// Reading again.
impl ParserState {
    /// Reads the byte at `at` on the stack; false where the lexer or the parser refuses it.
    ///
    /// After false, `reading.boundary` is what it can fall back to.
    fn step(&mut self, reading: &mut Reading, level: usize, at: usize) -> bool {
        if !reading.goes_on() {
            return false;
        }
        let byte = self.lexer_stack[at].byte.unwrap();
        let top = reading.top;
        let lexer = self.shared_box.lexer_mut();
        let res = lexer.advance(top.lexer_state, byte, false, &self.cancellation);
        match res {
            LexerResult::State(lexer_state, _) => {
                if self.read_on(reading, lexer_state, byte, at) {
                    self.outdate_levels(level);
                }
                true
            }
            LexerResult::Error => {
                // Where the top accepts, the lexeme ends there, and the byte can begin no other.
                if self.accepts(top) {
                    reading.boundary = None;
                }
                false
            }
            res => {
                reading.boundary = None;
                self.outdate_levels(level);
                self.feed(reading, res, at)
            }
        }
    }

    /// Goes on in the middle of a lexeme with the byte at `at`; returns whether it could end there.
    #[inline(always)]
    fn read_on(&self, reading: &mut Reading, state: StateID, byte: u8, at: usize) -> bool {
        let accepts = self.accepts_in(state);
        if accepts {
            reading.boundary = None;
        } else if self.accepts(reading.top) {
            reading.boundary = self.boundary_before(at, reading.top.lexer_state, byte);
        }
        reading.top.lexer_state = state;
        reading.top.byte = Some(byte);
        accepts
    }

    /// Gives the parser the lexeme that ended at the boundary, and reads the byte after it.
    fn emit(&mut self, reading: &mut Reading, boundary: Boundary) -> bool {
        self.fallback.stats.recoveries += 1;
        self.fallback.stats.reread_bytes += 1;
        let at = boundary.at + 1;
        debug_def!(
            self,
            "  fall back: to {}, row {}",
            boundary.at,
            reading.top.row_idx
        );
        reading.boundary = None;
        reading.top.lexer_state = boundary.state;
        let lexeme = PreLexeme {
            idx: MatchingLexemesIdx::GreedyAccepting(boundary.state),
            byte: self.lexer_stack[at].byte,
            byte_next_row: true,
        };
        self.feed(reading, LexerResult::Lexeme(lexeme), at)
    }

    /// Reads the bytes from `at` to before `end`, falling back where the lexer dies.
    ///
    /// Levels have read what is below `base`: a boundary there is left to them, and a newer one is
    /// emitted on the spot. Returns the reading and its level, or none where all readings die.
    ///
    /// A reading that comes into the state of the one on the stack dies when that does. So it falls
    /// back at once, and a run of boundaries that end alike is read in one pass.
    fn reread(
        &mut self,
        mut reading: Reading,
        mut level: usize,
        mut at: usize,
        end: usize,
        base: usize,
    ) -> Option<(Reading, usize)> {
        while at < end {
            if self.is_cancelled() {
                return None;
            }
            self.fallback.stats.reread_bytes += 1;
            if self.step(&mut reading, level, at) && !self.is_as_the_stack(&reading, at, base) {
                at += 1;
                continue;
            }
            (reading, level, at) = self.next_reading(reading, level, base)?;
        }
        Some((reading, level))
    }

    /// Whether a level that is being made has come, with the byte at `at`, into the state in which
    /// the reading on the stack was after it. No boundary has been passed there since.
    #[inline(always)]
    fn is_as_the_stack(&self, reading: &Reading, at: usize, base: usize) -> bool {
        base == 0
            && reading.top.byte.is_some()
            && reading.top.lexer_state == self.lexer_stack[at].lexer_state
    }

    /// Falls back from a reading that is stuck; also returns how far the new one has read.
    fn next_reading(
        &mut self,
        mut reading: Reading,
        level: usize,
        base: usize,
    ) -> Option<(Reading, usize, usize)> {
        let boundary = reading.boundary?;
        if boundary.at + 1 < base {
            let next = self.next_level(level, base)?;
            Some((self.level(next, base), next, base))
        } else if self.emit(&mut reading, boundary) {
            Some((reading, level, boundary.at + 2))
        } else {
            None
        }
    }

    /// The level that follows; of many, the first that does not plainly die in the walk's bytes.
    fn next_level(&mut self, level: usize, base: usize) -> Option<usize> {
        let mut next = level + 1;
        if self.has_many_levels(level) && !self.scratch.definitive {
            while let Some(reading) = self.fallback.levels.get(next - 1).map(|l| l.reading) {
                if self.fate_of(reading, base) != Fate::Dies {
                    break;
                }
                reading.boundary?;
                next += 1;
            }
        }
        Some(next)
    }

    /// What becomes of a level's reading in the bytes of a walk, as far as the lexer alone knows.
    fn fate_of(&mut self, reading: Reading, base: usize) -> Fate {
        let mut state = reading.top.lexer_state;
        if !reading.goes_on() {
            return Fate::Dies;
        }
        if self.accepts(reading.top) && base < self.lexer_stack.len() {
            return Fate::Open;
        }
        for at in base..self.lexer_stack.len() {
            let byte = self.lexer_stack[at].byte.unwrap_or(0);
            let dfa = &mut self.lexer_mut().dfa;
            // A hint is cheaper than a state of the lexer that nobody has asked for yet.
            match dfa.next_byte(state) {
                NextByte::ForcedByte(other) if other != byte => return Fate::Dies,
                _ => state = dfa.transition(state, byte),
            }
            if state.is_dead() {
                return Fate::Dies;
            }
            if state.has_lowest_match() || self.accepts_in(state) {
                return Fate::Open;
            }
        }
        Fate::Lives(state)
    }

    /// Advances the parser by a lexeme of `reading` that ends before or with the byte at `at`.
    ///
    /// The parser finds the row, and what it needs of the lexeme's bytes, on the top of the stack.
    fn feed(&mut self, reading: &mut Reading, res: LexerResult, at: usize) -> bool {
        let len = self.lexer_stack.len();
        let hidden = match res {
            LexerResult::Lexeme(lexeme) => self.lexer().lexeme_props(lexeme.idx).0,
            _ => 0,
        };
        if self.scratch.definitive {
            self.forget_lexeme(reading.top.row_idx);
            // A byte that is not committed yet is marked as `fall_back()` does.
            let pending = self.lexer_state().row_idx == SEPARATOR.row_idx;
            self.fallback.lag = (len - usize::from(pending)).saturating_sub(at);
        }
        if hidden > 0 {
            // The parser takes these bytes off the stack, so they must be on it.
            self.lexer_stack.push(SEPARATOR);
            for idx in reading.lexeme_from..at {
                let byte = self.lexer_stack[idx].byte;
                self.lexer_stack.push(LexerState {
                    byte,
                    ..reading.top
                });
            }
        }
        if hidden == 0 || reading.lexeme_from >= at {
            self.lexer_stack.push(reading.top);
            self.fallback.fed = Some(Fed {
                row_idx: reading.top.row_idx,
                from: reading.lexeme_from,
                to: at,
            });
        }
        let ok = self.advance_lexer_or_parser(res, reading.top);
        self.fallback.fed = None;
        self.fallback.lag = 0;
        reading.next = match std::mem::take(&mut self.backtrack_byte_count) {
            0 => Next::Bytes,
            given_back => Next::GivenBack(given_back),
        };
        if ok {
            let entries = &self.lexer_stack[len..];
            let top = entries[entries.len() - 1];
            let in_lexeme =
                |entry: &&LexerState| entry.row_idx == top.row_idx && entry.byte.is_some();
            reading.lexeme_from = at + 1 - entries.iter().rev().take_while(in_lexeme).count();
            reading.top = top;
        }
        self.lexer_stack.truncate(len);
        ok
    }

    /// Forgets what another reading, now dropped, emitted from a row; captures would begin with it.
    fn forget_lexeme(&mut self, row_idx: u32) {
        if self.scratch.definitive {
            let lexeme = &mut self.row_infos[row_idx as usize].lexeme;
            if !lexeme.is_bogus() {
                *lexeme = Lexeme::bogus();
            }
        }
    }

    /// Reads to the end of the stack, falling back until the lexeme is complete there or empty.
    fn reading_to_end(&mut self) -> Option<(Reading, usize)> {
        let (boundary, mut level) = self.newest_boundary()?;
        let (base, end) = (self.base(), self.lexer_stack.len());
        let mut reading = Reading::of(self.lexer_state(), end, Some(boundary));
        loop {
            let at;
            (reading, level, at) = self.next_reading(reading, level, base)?;
            (reading, level) = self.reread(reading, level, at, end, base)?;
            if !reading.goes_on() {
                return None;
            }
            if reading.top.byte.is_none() || self.accepts(reading.top) {
                return Some((reading, level));
            }
        }
    }
}

// Falling back.
impl ParserState {
    #[inline(always)]
    fn commit(&mut self, res: LexerResult, curr: LexerState, byte: Option<u8>) -> Commit {
        let at = self.lexer_stack.len();
        match (res, byte) {
            (LexerResult::State(lexer_state, byte), _) => {
                self.lexer_stack.push(LexerState {
                    row_idx: curr.row_idx,
                    lexer_state,
                    byte: Some(byte),
                });
                match self.lexer().dfa.dead_end(lexer_state) {
                    // Nothing was pending before, and nothing is now.
                    DeadEnd::Reject => Commit::Done,
                    DeadEnd::Emit => {
                        self.commit_acceptance(at, curr.row_idx);
                        Commit::Done
                    }
                    DeadEnd::FallBack => {
                        self.commit_past_boundary(at, curr, byte);
                        Commit::LevelsBehind
                    }
                }
            }
            (LexerResult::Error, Some(byte)) => {
                self.drop_walk_levels();
                if self.dead_end_of(curr) == DeadEnd::FallBack && self.fall_back(byte) {
                    Commit::LevelsBehind
                } else {
                    Commit::Refused
                }
            }
            (res, _) => {
                self.forget_lexeme(curr.row_idx);
                self.keep_levels(0);
                if self.advance_lexer_or_parser(res, curr) {
                    Commit::Done
                } else {
                    Commit::Refused
                }
            }
        }
    }

    /// The entry at `at` accepts: the boundary that was pending, if any, is lost.
    #[inline(always)]
    fn commit_acceptance(&mut self, at: usize, row_idx: u32) {
        self.keep_levels(0);
        let last = self.fallback.marks.last();
        if last.is_some_and(|mark| mark.row_idx == row_idx && mark.boundary().is_some()) {
            self.mark(at, row_idx, Change::Lost);
        }
    }

    #[inline(never)]
    fn commit_past_boundary(&mut self, at: usize, curr: LexerState, byte: u8) {
        self.drop_walk_levels();
        if self.accepts(curr) {
            let boundary = self.boundary_before(at, curr.lexer_state, byte);
            self.mark(
                at,
                curr.row_idx,
                boundary.map_or(Change::Lost, Change::Passed),
            );
        }
    }

    fn mark(&mut self, at: usize, row_idx: u32, change: Change) {
        self.fallback.marks.push(Mark {
            at,
            row_idx,
            change,
        });
    }

    /// Marks the entry at `at` as a jump into a reading, its top, of a level.
    fn mark_jump(&mut self, at: usize, reading: Reading, level: usize) {
        // A walk leaves the marks of what it has popped.
        self.forget_marks(at);
        let jump = Jump {
            lexeme_from: reading.lexeme_from,
            boundary: reading.boundary,
            level,
        };
        self.mark(at, reading.top.row_idx, Change::Jump(jump));
    }

    /// Pushes a byte that kills the lexer, as read after a fallback.
    #[inline(never)]
    fn fall_back(&mut self, byte: u8) -> bool {
        let at = self.lexer_stack.len();
        let base = self.base();
        let top = self.lexer_state();
        let started = if self.scratch.definitive {
            let found = self.newest_boundary();
            found.map(|(boundary, level)| (Reading::of(top, at, Some(boundary)), level))
        } else {
            self.note_walk(Leaves::Traces);
            self.reading_of_siblings()
        };
        let Some((reading, level)) = started else {
            return false;
        };
        // The bytes to read are those on the stack.
        self.lexer_stack.push(LexerState {
            byte: Some(byte),
            ..SEPARATOR
        });
        let Some((reading, mut level)) = self.reread(reading, level, at, at + 1, base) else {
            self.lexer_stack.truncate(at);
            return false;
        };
        self.lexer_stack[at] = reading.top;
        if self.scratch.definitive {
            self.promote(level);
            level = 0;
            if let Next::GivenBack(bytes) = reading.next {
                self.backtrack_byte_count = bytes;
            }
        }
        self.mark_jump(at, reading, level);
        true
    }

    /// The siblings of what comes next in a walk, where the last fallback was of one of them.
    #[inline(always)]
    fn known_siblings(&self) -> Option<&Siblings> {
        let known = self.fallback.walk.siblings.as_ref()?;
        let pushed = &self.lexer_stack[self.trie_lexer_stack..];
        let same = pushed.len() == known.path.len()
            && (0..pushed.len()).all(|idx| pushed[idx].byte == Some(known.path[idx]));
        same.then_some(known)
    }

    /// Whether passing through the levels after `level` one by one would take long.
    #[inline(always)]
    fn has_many_levels(&self, level: usize) -> bool {
        self.fallback.levels.len() > level + MANY
    }

    /// Whether it is plain that no level from `level` on survives the byte after `siblings.path`.
    #[cold]
    fn many_levels_reject(&mut self, level: usize, byte: u8) -> bool {
        let siblings = self.fallback.walk.siblings.as_ref();
        let known = siblings.and_then(|known| known.going_on);
        let going_on = known.unwrap_or_else(|| {
            let made = self.bytes_going_on(level);
            if let Some(siblings) = &mut self.fallback.walk.siblings {
                siblings.going_on = Some(made);
            }
            made
        });
        !going_on.has(byte)
    }

    /// The bytes that some level from `level` on may survive after those of the walk.
    fn bytes_going_on(&mut self, level: usize) -> ByteSet {
        let base = self.base();
        let mut found = ByteSet::default();
        for level in level.max(1).. {
            let reading = match self.fallback.levels.get(level - 1) {
                Some(level) => level.reading,
                None => self.level(level, base),
            };
            match self.fate_of(reading, base) {
                Fate::Open => return ByteSet::all(),
                Fate::Dies => {}
                Fate::Lives(state) => {
                    let dfa = &mut self.shared_box.lexer_mut().dfa;
                    found.add(match dfa.next_byte(state) {
                        NextByte::ForcedByte(only) => ByteSet::only(only),
                        _ => *self.fallback.alive.entry(state).or_insert_with(|| {
                            ByteSet::of(|byte| !dfa.transition(state, byte).is_dead())
                        }),
                    });
                    if dfa.dead_end(state) == DeadEnd::Emit {
                        // A newer boundary: no level after this one counts.
                        found.add(ByteSet::of(|byte| dfa.may_begin_with(byte)));
                        return found;
                    }
                }
            }
            if reading.boundary.is_none() {
                return found;
            }
        }
        found
    }

    /// In a walk, what the top of the stack falls back to, all bytes on the stack read.
    fn reading_of_siblings(&mut self) -> Option<(Reading, usize)> {
        if let Some(known) = self.known_siblings() {
            return known.reading;
        }
        let (base, end) = (self.base(), self.lexer_stack.len());
        let pushed = &self.lexer_stack[base..];
        // An entry without a byte is not in this lexeme: such a path will not match again.
        let path = pushed.iter().map(|entry| entry.byte.unwrap_or(0)).collect();
        let reading = self.newest_boundary().and_then(|(boundary, level)| {
            let reading = Reading::of(self.lexer_state(), end, Some(boundary));
            let (reading, level, at) = self.next_reading(reading, level, base)?;
            self.reread(reading, level, at, end, base)
        });
        let rows = reading.map_or(0, |(reading, _)| reading.top.row_idx as usize + 1);
        self.fallback.rows_in_use = self.fallback.rows_end.max(rows);
        self.fallback.walk.siblings = Some(Siblings {
            path,
            reading,
            going_on: None,
        });
        reading
    }

    /// Makes a level the parser's own reading.
    fn promote(&mut self, level: usize) {
        debug!(
            "  promote level {} of {}",
            level,
            self.fallback.levels.len()
        );
        self.fallback.stats.promotions += 1;
        self.fallback.levels.drain(..level);
        self.note_levels_end();
    }
}

// Levels.
impl ParserState {
    /// The reading of a level, which has read what is below `base`. The level above it exists.
    ///
    /// In definitive mode this is the first step of its promotion.
    fn level(&mut self, level: usize, base: usize) -> Reading {
        self.note_walk(Leaves::Traces);
        self.put_rows_back();
        if level > self.fallback.levels.len() {
            self.apart(|state| state.make_level(base));
        }
        if self.scratch.definitive {
            let captures = &mut self.fallback.levels[level - 1].captures;
            for capture in std::mem::take(&mut captures.capture_list) {
                self.captures.push(capture);
            }
        }
        self.fallback.levels[level - 1].reading
    }

    /// The reading of the last level, 0 included.
    fn last_reading(&self, base: usize) -> Reading {
        match self.fallback.levels.last() {
            Some(level) => level.reading,
            None => {
                let boundary = self.committed_boundary(base);
                // A walk makes no lexemes, and so needs no bytes of them.
                let start = match boundary {
                    Some(_) if self.scratch.definitive => self.lexeme_start(base - 1),
                    _ => base,
                };
                Reading::of(self.lexer_stack[base - 1], start, boundary)
            }
        }
    }

    /// Makes the next level from the boundary of the last one.
    fn make_level(&mut self, base: usize) {
        let mut reading = self.last_reading(base);
        let dead = Reading::dead(reading.top.row_idx);
        let own = std::mem::replace(&mut self.captures, Captures::new());
        let nodes = self.scratch.grammar_stack.len();
        let term = match self.scratch.definitive {
            true => Term::InStep,
            false => Term::OfWalk,
        };
        let read = reading.boundary.and_then(|boundary| {
            let level = self.fallback.levels.len() + 1;
            self.emit(&mut reading, boundary)
                .then(|| self.reread(reading, level, boundary.at + 2, base, 0))?
        });
        self.fallback.levels.push(Level {
            reading: read.map_or(dead, |(reading, _)| reading),
            captures: std::mem::replace(&mut self.captures, own),
            term,
        });
        if self.scratch.grammar_stack.len() > nodes {
            self.note_walk(Leaves::FleetingLevel);
        }
        debug_def!(
            self,
            "  level {} at {}: {}",
            self.fallback.levels.len(),
            base,
            if read.is_some() { "made" } else { "dead" }
        );
        self.note_levels_end();
    }

    /// Remembers the levels, so that a rollback to here or to a little later finds them.
    ///
    /// The older ones are, the fewer are kept: of the positions that a power of four divides, the
    /// last two. So a rollback reads again at most four times the bytes that it takes back. Many
    /// levels are remembered at every fourth byte only.
    fn take_snapshot(&mut self, base: usize) {
        let many = self.has_many_levels(0);
        if self.fallback.levels.is_empty()
            || many && base % 4 != 0
            || self.fallback.levels.iter().any(Level::has_captured)
        {
            return;
        }
        let readings = self
            .fallback
            .levels
            .iter()
            .map(|level| level.reading)
            .collect();
        let reach = |at: usize| 2 << (at.trailing_zeros() & !1);
        let snapshots = &mut self.fallback.snapshots;
        snapshots.retain(|known| base - known.base <= reach(known.base));
        snapshots.push(Snapshot { base, readings });
    }

    /// Makes levels for boundaries that are more than the threshold behind.
    fn make_due_levels(&mut self, base: usize) {
        let threshold = self.limits.fallback_threshold as usize;
        loop {
            match self.last_reading_boundary(base) {
                Some(boundary) if base - 1 - boundary.at > threshold => {
                    self.fallback.stats.snapshots += 1;
                    self.make_level(base);
                }
                _ => return,
            }
        }
    }

    fn last_reading_boundary(&self, base: usize) -> Option<Boundary> {
        match self.fallback.levels.last() {
            Some(level) => level.reading.boundary,
            None => self.committed_boundary(base),
        }
    }

    /// Brings the levels up to the top of the stack, by one committed byte, and makes those whose
    /// bytes have become too many to be read again.
    #[inline(never)]
    fn sync_levels(&mut self) {
        let base = self.lexer_stack.len();
        self.bring_levels_to(base);
        self.take_snapshot(base);
    }

    /// Brings levels that have read all but the last byte below `base` up to it.
    fn bring_levels_to(&mut self, base: usize) {
        self.apart(|state| {
            state.step_levels(base);
            state.make_due_levels(base);
        });
    }

    /// Runs what the limits of a step are not meant for: bytes that were read before are read in
    /// another context. The lexer may spend as much on that as on a mask.
    fn apart<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let own = self.limits.step_lexer_fuel;
        let items = self.stats.all_items;
        let fuel = self.lexer().dfa.get_fuel();
        self.lexer_mut().dfa.set_fuel(fuel.max(own));
        let result = f(self);
        self.lexer_mut().dfa.set_fuel(fuel);
        let spent = self.stats.all_items - items;
        self.max_all_items = self.max_all_items.saturating_add(spent);
        result
    }

    /// Reads the last byte below `base` in every level.
    fn step_levels(&mut self, base: usize) {
        let mut seen = std::mem::take(&mut self.fallback.seen);
        seen.begin(self.fallback.levels.len());
        seen.add(self.lexer_stack[base - 1].lexer_state);
        let mut level = 1;
        while level <= self.fallback.levels.len() {
            self.fallback.stats.synced_bytes += 1;
            let mut reading = self.fallback.levels[level - 1].reading;
            let row_idx = reading.top.row_idx;
            let mut alive = self.step_level(&mut reading, level, base - 1);
            // The same byte will kill a level that is in the same state of the lexer as one above
            // it, so it would only ever be passed through. Without it there are no more levels
            // than the lexer has states, however long the text.
            let through = !alive || seen.has(reading.top.lexer_state);
            if through && reading.boundary.is_some() {
                let last = level == self.fallback.levels.len();
                if last && alive {
                    self.fallback.levels[level - 1].reading = reading;
                    self.make_level(base);
                }
                if !last || alive {
                    self.drop_level(level);
                    level += usize::from(last);
                    continue;
                }
            }
            if let (false, Some(boundary)) = (alive, reading.boundary) {
                self.swap_captures(level);
                if self.emit(&mut reading, boundary) {
                    let read = self.reread(reading, level, boundary.at + 2, base, 0);
                    alive = read.is_some();
                    reading = read.map_or(reading, |(reading, _)| reading);
                }
                self.swap_captures(level);
            }
            if alive {
                seen.add(reading.top.lexer_state);
            } else {
                reading = Reading::dead(row_idx);
                self.keep_levels(level);
            }
            self.fallback.levels[level - 1].reading = reading;
            level += 1;
        }
        self.fallback.seen = seen;
        self.note_levels_end();
    }

    /// `step()` for a level that is kept in step; lexemes that end are captured in the level.
    #[inline(always)]
    fn step_level(&mut self, reading: &mut Reading, level: usize, at: usize) -> bool {
        if !reading.goes_on() {
            return false;
        }
        let byte = self.lexer_stack[at].byte.unwrap();
        let dfa = &mut self.shared_box.lexer_mut().dfa;
        let next =
            dfa.transition_with_cancellation(reading.top.lexer_state, byte, &self.cancellation);
        if !next.is_dead() && !next.has_lowest_match() {
            // In the middle of its lexeme, as most levels are.
            if self.read_on(reading, next, byte, at) {
                self.outdate_levels(level);
            }
            return true;
        }
        self.swap_captures(level);
        let alive = self.step(reading, level, at);
        self.swap_captures(level);
        alive
    }

    /// Drops a level that its next one, which is what it falls back to, takes the place of.
    fn drop_level(&mut self, level: usize) {
        let dropped = self.fallback.levels.remove(level - 1).captures;
        let captures = &mut self.fallback.levels[level - 1].captures;
        let newer = std::mem::replace(captures, dropped);
        newer
            .capture_list
            .into_iter()
            .for_each(|c| captures.push(c));
    }

    fn swap_captures(&mut self, level: usize) {
        let captures = &mut self.fallback.levels[level - 1].captures;
        std::mem::swap(&mut self.captures, captures);
    }

    /// Drops the levels below one that has accepted or emitted: their boundary is lost.
    #[inline(always)]
    fn outdate_levels(&mut self, level: usize) {
        if self.scratch.definitive {
            self.keep_levels(level);
        }
    }

    /// The levels that are kept in step.
    fn kept_levels(&self) -> impl Iterator<Item = &Level> {
        self.fallback
            .levels
            .iter()
            .take_while(|level| level.term == Term::InStep)
    }

    /// To be called before anything is committed.
    #[inline(always)]
    fn drop_walk_levels(&mut self) {
        let last = self.fallback.levels.last();
        if last.is_some_and(|level| level.term == Term::OfWalk) {
            let kept = self.kept_levels().count();
            self.keep_levels(kept);
        }
    }

    #[inline(always)]
    fn keep_levels(&mut self, count: usize) {
        if self.fallback.levels.len() > count {
            self.fallback.levels.truncate(count);
            self.note_levels_end();
        }
    }

    #[inline(never)]
    fn note_levels_end(&mut self) {
        let end_of = |level: &Level| level.reading.top.row_idx as usize + 1;
        let rows = self.fallback.levels.last().map_or(0, end_of);
        self.fallback.rows_end = rows;
        self.fallback.items_end = match rows {
            0 => 0,
            _ => self.rows[rows - 1].last_item as usize,
        };
        self.fallback.row_infos_end = self.kept_levels().last().map_or(0, end_of);
        self.fallback.rows_in_use = rows;
        self.fallback.walk.siblings = None;
        if self.scratch.definitive {
            let infos = self.num_rows().max(self.fallback.row_infos_end);
            self.row_infos.truncate(infos);
            // Rows above may now be written over.
            for snapshot in &mut self.fallback.snapshots {
                let readings = &mut snapshot.readings;
                while readings
                    .last()
                    .is_some_and(|r| r.top.row_idx as usize >= infos)
                {
                    readings.pop();
                }
            }
        }
    }

    fn put_rows_back(&mut self) {
        if !self.fallback.walk.displaced.is_empty() {
            self.fallback.walk.siblings = None;
            for (idx, row) in self.fallback.walk.displaced.drain(..) {
                self.rows[idx] = row;
            }
            self.rows_valid_end = self.fallback.rows_end;
        }
    }
}

/// A recognizer for trie walks with the fallback on. It is a type of its own so that a walk with
/// the fallback off has not one instruction more than it ever had.
struct FallbackRecognizer<'a> {
    // Not a ParserRecognizer: through a second pointer, the walk would load this anew at each byte.
    state: &'a mut ParserState,
}

impl FallbackRecognizer<'_> {
    fn stock(&mut self) -> ParserRecognizer<'_> {
        ParserRecognizer::new(self.state)
    }
}

impl Recognizer for FallbackRecognizer<'_> {
    fn cancellation_enabled(&self) -> bool {
        self.state.cancellation.is_some()
    }

    fn cancellation_requested(&self) -> bool {
        self.state.is_cancelled()
    }

    #[inline(always)]
    fn pop_bytes(&mut self, num: usize) {
        self.stock().pop_bytes(num);
    }

    fn collapse(&mut self) {
        self.stock().collapse();
    }

    fn trie_started(&mut self, lbl: &str) {
        self.stock().trie_started(lbl);
    }

    fn trie_finished(&mut self) {
        self.stock().trie_finished();
    }

    #[inline(always)]
    fn try_push_byte(&mut self, byte: u8) -> bool {
        let state = &mut *self.state;
        let curr = state.lexer_state();
        let lexer = state.shared_box.lexer_mut();
        let cancellation = &state.cancellation;
        let next = lexer
            .dfa
            .transition_with_cancellation(curr.lexer_state, byte, cancellation);
        if next.is_dead() {
            match lexer.dfa.dead_end(curr.lexer_state) {
                DeadEnd::Reject => false,
                DeadEnd::Emit => state.push_after_lexeme(curr.lexer_state, byte),
                DeadEnd::FallBack => {
                    !state.no_reading_begins_with(byte) && state.push_past_boundary(byte)
                }
            }
        } else if next.has_lowest_match() {
            state.push_lazy_lexeme(next, byte)
        } else {
            state.lexer_stack.push(LexerState {
                row_idx: curr.row_idx,
                lexer_state: next,
                byte: Some(byte),
            });
            true
        }
    }

    fn save_stats(&mut self, nodes_walked: usize) {
        self.stock().save_stats(nodes_walked);
    }
}

/// Whether a lexeme in a state could end within a token below a node, as far as the lexer knows.
fn may_end_below(node: &TrieNode, tokens: &TokTrie, lexer: &mut Lexer, state: StateID) -> bool {
    // Most tokens die at once, which the lexer's hint says for all of them.
    let hint = lexer.dfa.next_byte(state);
    let may_end_with = |child: &TrieNode| {
        let next = lexer.dfa.transition(state, child.byte());
        !next.is_dead()
            && (next.has_lowest_match()
                || lexer.dfa.dead_end(next) == DeadEnd::Emit
                || may_end_below(child, tokens, lexer, next))
    };
    match hint {
        NextByte::Dead | NextByte::ForcedEOI => false,
        NextByte::ForcedByte(byte) => tokens.child_at_byte(node, byte).is_some_and(may_end_with),
        _ => tokens.node_children(node).any(may_end_with),
    }
}

impl ParserRecognizer<'_> {
    /// Whether all tokens of a slice are allowed by a reading other than the stack's.
    ///
    /// They are where the slice is within that reading's lexeme, and no reading above it comes to a
    /// newer boundary in any of the tokens, by which the others would be lost.
    #[inline(always)]
    pub(crate) fn other_reading_subsumes(
        &mut self,
        idx: usize,
        budget: u64,
        tokens: &TokTrie,
    ) -> bool {
        self.state.fallback_pending() && self.level_subsumes(idx, budget, tokens)
    }

    #[inline(never)]
    fn level_subsumes(&mut self, idx: usize, budget: u64, tokens: &TokTrie) -> bool {
        let state = &mut *self.state;
        let base = state.lexer_stack.len();
        let mut above = vec![state.lexer_state().lexer_state];
        for level in 1..=SLICED_LEVELS {
            let known = state.fallback.levels.get(level - 1).map(|l| l.reading);
            let reading = known.unwrap_or_else(|| {
                state.run_speculative("slice", |state| state.level(level, base))
            });
            let lexer = state.shared_box.lexer_mut();
            let lexer_state = reading.top.lexer_state;
            let cancellation = state.cancellation.as_ref();
            if reading.goes_on()
                && lexer.subsume_possible(lexer_state)
                && lexer
                    .check_subsume(lexer_state, idx, budget, cancellation)
                    .unwrap_or(false)
            {
                return !above
                    .iter()
                    .any(|&state| may_end_below(tokens.root(), tokens, lexer, state));
            }
            if reading.boundary.is_none() {
                return false;
            }
            above.push(lexer_state);
        }
        false
    }

    /// This recognizer with the fallback on; only to be used where it is.
    fn with_fallback(&mut self) -> FallbackRecognizer<'_> {
        FallbackRecognizer { state: self.state }
    }

    /// `trie.add_bias()` with this recognizer, the fallback on where the grammar asks for it.
    pub(crate) fn add_bias(&mut self, trie: &TokTrie, set: &mut SimpleVob, start: &[u8]) {
        if self.state.fallback.on {
            trie.add_bias(&mut self.with_fallback(), set, start)
        } else {
            trie.add_bias(self, set, start)
        }
    }

    /// `trie.chop_tokens()`, in the same way.
    pub(crate) fn chop_tokens(&mut self, trie: &TokTrie, tokens: &[TokenId]) -> (usize, usize) {
        if self.state.fallback.on {
            trie.chop_tokens(&mut self.with_fallback(), tokens)
        } else {
            trie.chop_tokens(self, tokens)
        }
    }

    /// `try_push_byte()`, in the same way.
    pub(super) fn push_byte(&mut self, byte: u8) -> bool {
        if self.state.fallback.on {
            self.with_fallback().try_push_byte(byte)
        } else {
            self.try_push_byte(byte)
        }
    }
}

impl Parser {
    /// The work done by the fallback; none where the grammar does not ask for it.
    pub fn fallback_stats(&self) -> Option<&FallbackStats> {
        let fallback = &self.state.fallback;
        fallback.on.then_some(&fallback.stats)
    }

    pub fn set_fallback_threshold(&mut self, bytes: u32) {
        self.state.limits.fallback_threshold = bytes;
    }
}

#[cfg(test)]
mod tests;
