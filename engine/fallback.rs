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
//! step ever reads more than `threshold` bytes and those of one token, whatever the lexeme's length.
//!
//! A walk that emits a lexeme from a shallow level writes rows where deeper levels have theirs.
//! Those few rows are put aside (`displaced`) and put back before a level is used again; items are
//! always written above the levels' own.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::regexvec::DeadEnd;
use super::*;

/// How many bytes after a boundary are read again rather than kept in step.
static THRESHOLD: AtomicUsize = AtomicUsize::new(64);

/// Sets the threshold of parsers created from now on; for measurements.
pub fn set_fallback_threshold(bytes: usize) {
    THRESHOLD.store(bytes, Ordering::Relaxed);
}

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
    /// Bytes that a stop lexeme, which has just matched, gives back; where there are any, and in a
    /// reading that is dead, nothing can follow.
    hidden: usize,
}

impl Reading {
    fn of(top: LexerState, lexeme_from: usize, boundary: Option<Boundary>) -> Self {
        Reading {
            top,
            lexeme_from,
            boundary,
            hidden: 0,
        }
    }

    fn dead(row_idx: u32) -> Self {
        let top = LexerState {
            row_idx,
            lexer_state: StateID::DEAD,
            byte: None,
        };
        Reading {
            hidden: usize::MAX,
            ..Self::of(top, usize::MAX, None)
        }
    }
}

/// What the entry at `at` changed besides the stack: it is a jump, the first after a boundary, or
/// the one that another boundary is lost at.
#[derive(Clone)]
struct Mark {
    at: usize,
    row_idx: u32,
    boundary: Option<Boundary>,
    /// For a jump, the index of the first byte of the lexeme that it landed in.
    jump: Option<usize>,
    /// For a jump in a trie walk, the level that it landed in.
    level: usize,
}

#[derive(Clone)]
struct Level {
    reading: Reading,
    /// Captures made since the boundary; the parser's own once the level is promoted.
    captures: Captures,
    /// Made in a trie walk: without row infos and captures, good until something is committed.
    in_walk: bool,
}

/// Where the last fallback of a walk stood before its byte. The bytes that follow one prefix are
/// tried one after another, and most die: what they share is read once.
#[derive(Clone)]
struct Siblings {
    /// The bytes that the walk has pushed.
    path: Vec<u8>,
    /// None where all readings die within the path.
    reading: Option<(Reading, usize)>,
}

#[derive(Clone, Default)]
pub(super) struct Fallback {
    pub(super) on: bool,
    threshold: usize,
    marks: Vec<Mark>,
    levels: Vec<Level>,
    displaced: Vec<(usize, Row)>,
    siblings: Option<Siblings>,
    /// Rows and items below these belong to a level; 0 where there is none.
    rows_end: usize,
    pub(super) items_end: usize,
    /// The same for those rows that have an info: not those of levels made in a walk.
    pub(super) row_infos_end: usize,
    /// Rows below this are a level's or those of `siblings`.
    rows_in_use: usize,
    /// The lexeme that the parser is being given: its row, and where its bytes are on the stack.
    fed: Option<(u32, usize, usize)>,
    /// Whether the current walk has left anything to clean up.
    walked: bool,
    /// Whether a level of the walk points at grammar stack nodes, which end with the walk.
    fleeting: bool,
    /// Whether a byte was committed that the levels are to follow.
    out_of_step: bool,
    /// How far behind the committed bytes the byte that is being read lies.
    pub(super) lag: usize,
    stats: FallbackStats,
}

impl Fallback {
    pub(super) fn new(on: bool) -> Self {
        Fallback {
            on,
            threshold: THRESHOLD.load(Ordering::Relaxed),
            ..Default::default()
        }
    }
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
        if !self.commit(res, curr, byte) {
            return (false, 0);
        }
        if let Some(byte) = byte {
            self.bytes.push(byte);
        }
        if self.fallback.out_of_step {
            self.sync_levels();
        }
        let given_back = std::mem::take(&mut self.backtrack_byte_count);
        if given_back > 0 {
            self.last_force_bytes_len = usize::MAX;
            self.bytes.truncate(self.bytes.len() - given_back);
        }
        (true, given_back)
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

    /// To be called once tokens were rolled back.
    pub(super) fn roll_fallback_back(&mut self) {
        if !self.fallback.on {
            return;
        }
        // The cache is keyed by position, and other bytes may come to stand there.
        self.bias_cache = None;
        self.keep_levels(0);
        self.forget_marks(self.lexer_stack.len());
        self.make_due_levels();
    }

    /// To be called when a trie walk has put the stack back.
    #[inline(always)]
    pub(super) fn end_fallback_walk(&mut self) {
        if std::mem::take(&mut self.fallback.walked) {
            self.clean_up_after_walk();
        }
    }

    #[inline(never)]
    fn clean_up_after_walk(&mut self) {
        self.fallback.siblings = None;
        self.put_rows_back();
        self.forget_marks(self.lexer_stack.len());
        if std::mem::take(&mut self.fallback.fleeting) {
            self.drop_walk_levels();
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

    /// Ends the lexeme at its boundary, if one is pending, and reads the rest to the end. As
    /// `flush_lexer()`, it pushes one entry.
    #[inline(never)]
    pub(super) fn flush_by_fallback(&mut self) -> bool {
        self.fallback_pending() && self.flush_fallback()
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

    /// `forced_byte()` where a boundary is pending: two readings are open, so both must agree.
    pub(super) fn forced_byte_by_trial(&mut self) -> Option<u8> {
        self.run_speculative("forced_byte", |state| {
            let mut found = None;
            for byte in 0..=255 {
                if state.try_push_byte_or_fall_back(byte) {
                    state.pop_lexer_states(1);
                    if found.is_some() {
                        return None;
                    }
                    found = Some(byte);
                }
            }
            // A special token cannot be forced in the middle of a lexeme.
            found.filter(|&byte| byte != TokTrie::SPECIAL_TOKEN_MARKER)
        })
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
        self.fallback.siblings = None;
        self.fallback.walked = !self.scratch.definitive;
        if idx < self.fallback.rows_end && !self.scratch.definitive {
            let displaced = &mut self.fallback.displaced;
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
            Some((fed, from, to)) if fed == row_idx => Some(self.bytes_between(from, to)),
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

    /// Pushes a byte that kills the lexer in a state that is past an accepting one.
    #[cold]
    #[inline(never)]
    fn push_past_boundary(&mut self, byte: u8) -> bool {
        !self.siblings_reject(byte) && self.fall_back(byte)
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
                let mark = self.jump_at(at)?;
                return mark.boundary.map(|boundary| (boundary, mark.level));
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
        mark.boundary
    }

    /// The mark of the jump that pushed the entry at `at`, the first one of its row.
    ///
    /// Popping leaves the marks of a walk behind, so the entry itself must look like a jump: it
    /// began a lexeme with its byte, though the entry below could not end one.
    fn jump_at(&self, at: usize) -> Option<&Mark> {
        let below = self.lexer_stack[at.checked_sub(1)?];
        let begins = self.lexer_stack[at].byte.is_some();
        if !begins || self.accepts(below) || below.row_idx == SEPARATOR.row_idx {
            return None;
        }
        let marks = &self.fallback.marks;
        let found = marks.iter().rev().find(|mark| mark.at <= at)?;
        (found.at == at && found.jump.is_some()).then_some(found)
    }

    fn first_of_row(&self, at: usize) -> usize {
        let row_idx = self.lexer_stack[at].row_idx;
        let others = self.lexer_stack[..at].iter().rev();
        at - others.take_while(|entry| entry.row_idx == row_idx).count()
    }

    /// The index of the first byte of the lexeme that the committed entry at `at` is in.
    fn lexeme_start(&self, at: usize) -> usize {
        let first = self.first_of_row(at);
        match self.jump_at(first).and_then(|mark| mark.jump) {
            Some(from) => from,
            None => first + usize::from(self.lexer_stack[first].byte.is_none()),
        }
    }

    /// Where the current lexeme began, if it was jumped into.
    fn jump_in_lexeme(&self, row_idx: u32) -> Option<usize> {
        if !self.scratch.definitive {
            let top = self.lexer_stack.len() - 1;
            let first = self.first_of_row(top);
            return self.jump_at(first).and_then(|mark| mark.jump);
        }
        let marks = self.fallback.marks.iter().rev();
        let mut of_row = marks.take_while(|mark| mark.row_idx == row_idx);
        of_row.find_map(|mark| mark.jump)
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
        if reading.hidden > 0 {
            return false;
        }
        let byte = self.lexer_stack[at].byte.unwrap();
        let top = reading.top;
        let lexer = self.shared_box.lexer_mut();
        let res = lexer.advance(top.lexer_state, byte, false, &self.cancellation);
        match res {
            LexerResult::State(lexer_state, _) => {
                if self.accepts_in(lexer_state) {
                    reading.boundary = None;
                    self.outdate_levels(level);
                } else if self.accepts(top) {
                    reading.boundary = self.boundary_before(at, top.lexer_state, byte);
                }
                reading.top = LexerState {
                    lexer_state,
                    byte: Some(byte),
                    ..top
                };
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

    /// Gives the parser the lexeme that ended at the boundary, and reads the byte after it.
    fn emit(&mut self, reading: &mut Reading, boundary: Boundary) -> bool {
        self.fallback.stats.recoveries += 1;
        self.fallback.stats.reread_bytes += 1;
        let at = boundary.at + 1;
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
            if self.step(&mut reading, level, at) {
                at += 1;
                continue;
            }
            (reading, level, at) = self.next_reading(reading, level, base)?;
        }
        Some((reading, level))
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
            Some((self.level(level + 1, base), level + 1, base))
        } else if self.emit(&mut reading, boundary) {
            Some((reading, level, boundary.at + 2))
        } else {
            None
        }
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
            self.fallback.fed = Some((reading.top.row_idx, reading.lexeme_from, at));
        }
        let ok = self.advance_lexer_or_parser(res, reading.top);
        self.fallback.fed = None;
        self.fallback.lag = 0;
        reading.hidden = std::mem::take(&mut self.backtrack_byte_count);
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
            if reading.hidden > 0 {
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
    fn commit(&mut self, res: LexerResult, curr: LexerState, byte: Option<u8>) -> bool {
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
                    DeadEnd::Reject => {}
                    DeadEnd::Emit => self.commit_acceptance(at, curr.row_idx),
                    DeadEnd::FallBack => self.commit_past_boundary(at, curr, byte),
                }
                true
            }
            (LexerResult::Error, Some(byte)) => {
                self.drop_walk_levels();
                self.dead_end_of(curr) == DeadEnd::FallBack && self.fall_back(byte)
            }
            (res, _) => {
                self.forget_lexeme(curr.row_idx);
                self.keep_levels(0);
                self.advance_lexer_or_parser(res, curr)
            }
        }
    }

    /// The entry at `at` accepts: the boundary that was pending, if any, is lost.
    #[inline(always)]
    fn commit_acceptance(&mut self, at: usize, row_idx: u32) {
        self.keep_levels(0);
        let last = self.fallback.marks.last();
        if last.is_some_and(|mark| mark.row_idx == row_idx && mark.boundary.is_some()) {
            self.mark_boundary(at, row_idx, None);
        }
    }

    #[inline(never)]
    fn commit_past_boundary(&mut self, at: usize, curr: LexerState, byte: u8) {
        self.drop_walk_levels();
        if self.accepts(curr) {
            let boundary = self.boundary_before(at, curr.lexer_state, byte);
            self.mark_boundary(at, curr.row_idx, boundary);
        }
        self.fallback.out_of_step = true;
    }

    fn mark_boundary(&mut self, at: usize, row_idx: u32, boundary: Option<Boundary>) {
        self.fallback.marks.push(Mark {
            at,
            row_idx,
            boundary,
            jump: None,
            level: 0,
        });
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
            self.fallback.walked = true;
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
        let Some((reading, level)) = self.reread(reading, level, at, at + 1, base) else {
            self.lexer_stack.truncate(at);
            return false;
        };
        self.lexer_stack[at] = reading.top;
        self.forget_marks(at);
        let mut mark = Mark {
            at,
            row_idx: reading.top.row_idx,
            boundary: reading.boundary,
            jump: Some(reading.lexeme_from),
            level,
        };
        if self.scratch.definitive {
            mark.level = 0;
            self.promote(level);
            self.fallback.out_of_step = true;
            self.backtrack_byte_count = reading.hidden;
        }
        self.fallback.marks.push(mark);
        true
    }

    /// The siblings of what comes next in a walk, where the last fallback was of one of them.
    #[inline(always)]
    fn known_siblings(&self) -> Option<&Siblings> {
        let known = self.fallback.siblings.as_ref()?;
        let pushed = &self.lexer_stack[self.trie_lexer_stack..];
        let same = pushed.len() == known.path.len()
            && (0..pushed.len()).all(|idx| pushed[idx].byte == Some(known.path[idx]));
        same.then_some(known)
    }

    /// Whether it is plain that no reading survives the byte, as it is of most.
    #[inline(always)]
    fn siblings_reject(&mut self, byte: u8) -> bool {
        match self.known_siblings().map(|known| known.reading) {
            None => false,
            Some(None) => true,
            Some(Some((reading, _))) => {
                let state = reading.top.lexer_state;
                let dfa = &mut self.shared_box.lexer_mut().dfa;
                dfa.transition(state, byte).is_dead() && dfa.dead_end(state) == DeadEnd::Reject
            }
        }
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
        self.fallback.siblings = Some(Siblings { path, reading });
        reading
    }

    /// Makes a level the parser's own reading.
    fn promote(&mut self, level: usize) {
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
        self.fallback.walked = !self.scratch.definitive;
        self.put_rows_back();
        if level > self.fallback.levels.len() {
            self.make_level(base);
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
                    Some(boundary) if self.scratch.definitive => self.lexeme_start(boundary.at),
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
        let in_walk = !self.scratch.definitive;
        let read = reading.boundary.and_then(|boundary| {
            let level = self.fallback.levels.len() + 1;
            self.emit(&mut reading, boundary)
                .then(|| self.reread(reading, level, boundary.at + 2, base, 0))?
        });
        self.fallback.levels.push(Level {
            reading: read.map_or(dead, |(reading, _)| reading),
            captures: std::mem::replace(&mut self.captures, own),
            in_walk,
        });
        self.fallback.fleeting |= in_walk && self.scratch.grammar_stack.len() > nodes;
        self.note_levels_end();
    }

    /// Makes levels for boundaries that are more than the threshold behind.
    fn make_due_levels(&mut self) {
        let base = self.lexer_stack.len();
        loop {
            match self.last_reading_boundary(base) {
                Some(boundary) if base - 1 - boundary.at > self.fallback.threshold => {
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
        self.fallback.out_of_step = false;
        self.step_levels();
        self.make_due_levels();
    }

    /// Reads the byte on the top of the stack in every level.
    fn step_levels(&mut self) {
        let base = self.lexer_stack.len();
        let mut level = 1;
        while level <= self.fallback.levels.len() {
            self.fallback.stats.synced_bytes += 1;
            let mut reading = self.fallback.levels[level - 1].reading;
            let row_idx = reading.top.row_idx;
            self.swap_captures(level);
            let mut alive = self.step(&mut reading, level, base - 1);
            self.swap_captures(level);
            let through = !alive || self.dies_with_another(level, reading.top.lexer_state);
            if through && reading.boundary.is_some() && level < self.fallback.levels.len() {
                // The next level is what this one falls back to.
                let dropped = self.fallback.levels.remove(level - 1).captures;
                let captures = &mut self.fallback.levels[level - 1].captures;
                let newer = std::mem::replace(captures, dropped);
                newer
                    .capture_list
                    .into_iter()
                    .for_each(|c| captures.push(c));
                continue;
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
            if !alive {
                reading = Reading::dead(row_idx);
                self.keep_levels(level);
            }
            self.fallback.levels[level - 1].reading = reading;
            level += 1;
        }
        self.note_levels_end();
    }

    /// Whether a level above this one is in the same state of the lexer. The same byte then kills
    /// both, so that this one is only ever passed through; without it there are no more levels than
    /// the lexer has states, however long the text.
    fn dies_with_another(&self, level: usize, state: StateID) -> bool {
        let above = &self.fallback.levels[..level - 1];
        self.lexer_state().lexer_state == state
            || above.iter().any(|level| level.reading.top.lexer_state == state)
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
        self.fallback.levels.iter().take_while(|level| !level.in_walk)
    }

    /// To be called before anything is committed.
    #[inline(always)]
    fn drop_walk_levels(&mut self) {
        if self.fallback.levels.last().is_some_and(|level| level.in_walk) {
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
        self.fallback.siblings = None;
        if self.scratch.definitive {
            let infos = self.num_rows().max(self.fallback.row_infos_end);
            self.row_infos.truncate(infos);
        }
    }

    fn put_rows_back(&mut self) {
        if !self.fallback.displaced.is_empty() {
            self.fallback.siblings = None;
            for (idx, row) in self.fallback.displaced.drain(..) {
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
                DeadEnd::FallBack => state.push_past_boundary(byte),
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

impl ParserRecognizer<'_> {
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
}
