//! glrmask behind the functions of llgbench's adapter (`lb_peer` of csrc/peers.h).

mod peer;

use glrmask::{Constraint, ConstraintState, Grammar, Vocab};
use peer::{made, text, Tokens};
use std::ffi::c_char;

pub struct Vocabulary {
    vocab: Vocab,
    words: usize,
    eos: u32,
}

pub struct Compiled {
    constraint: Constraint,
    words: usize,
    eos: u32,
}

/// The compiled grammar outlives its matchers: the adapter frees it last.
pub struct Matcher {
    state: ConstraintState<'static>,
    compiled: &'static Compiled,
    mask: Vec<u32>,
    ended: bool,
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_vocabulary(
    _: *const u8, tokens: &Tokens, error: *mut c_char, error_len: usize,
) -> *mut Vocabulary {
    made(error, error_len, || {
        let vocab = Vocab::new(tokens.text().filter(|(id, _)| *id != tokens.eos).collect());
        Ok(Vocabulary { vocab, words: tokens.words(), eos: tokens.eos })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_compile(
    v: &Vocabulary, kind: u32, source: *const c_char, error: *mut c_char, error_len: usize,
) -> *mut Compiled {
    made(error, error_len, || {
        let source = text(source)?;
        let grammar = if kind == 0 { Grammar::from_json_schema(source) } else { Grammar::from_lark(source) };
        let constraint = grammar.and_then(|g| g.compile(&v.vocab)).map_err(|e| e.to_string())?;
        Ok(Compiled { constraint, words: v.words, eos: v.eos })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_start(
    compiled: &'static Compiled, error: *mut c_char, error_len: usize,
) -> *mut Matcher {
    made(error, error_len, || {
        let mask = vec![0; compiled.words.max(compiled.constraint.mask_len())];
        Ok(Matcher { state: compiled.constraint.start(), compiled, mask, ended: false })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_mask(m: &mut Matcher) -> i32 {
    m.state.fill_mask(&mut m.mask);
    0
}

/// glrmask leaves the end of the text to its caller.
#[unsafe(no_mangle)]
pub extern "C" fn lbp_finish(m: &mut Matcher) -> *const u32 {
    if m.state.is_accepting() && m.compiled.eos != u32::MAX {
        m.mask[m.compiled.eos as usize / 32] |= 1 << (m.compiled.eos % 32);
    }
    m.mask.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_accept(m: &mut Matcher, token: u32) -> i32 {
    if token == m.compiled.eos {
        m.ended = m.state.is_accepting();
        return !m.ended as i32;
    }
    !m.state.commit_token(token) as i32
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_complete(m: &Matcher) -> bool {
    m.ended || m.state.is_accepting()
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_stopped(m: &Matcher) -> bool {
    m.ended
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_reset(m: &mut Matcher) -> i32 {
    m.state = m.compiled.constraint.start();
    m.ended = false;
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_fork(m: &Matcher) -> *mut Matcher {
    let (state, mask) = (m.state.clone(), m.mask.clone());
    Box::into_raw(Box::new(Matcher { state, compiled: m.compiled, mask, ended: m.ended }))
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_free_matcher(m: *mut Matcher) {
    drop(unsafe { Box::from_raw(m) });
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_free_compiled(c: *mut Compiled) {
    drop(unsafe { Box::from_raw(c) });
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_free_vocabulary(v: *mut Vocabulary) {
    drop(unsafe { Box::from_raw(v) });
}
