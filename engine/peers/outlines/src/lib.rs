//! outlines-core behind the functions of llgbench's adapter (`lb_peer` of csrc/peers.h).

mod peer;

use outlines_core::{index::Index, json_schema, vocabulary::Vocabulary as Tokenizer};
use peer::{made, text, Tokens};
use std::ffi::c_char;

pub struct Vocabulary {
    tokens: Tokenizer,
    words: usize,
    eos: u32,
}

pub struct Compiled {
    index: Index,
    words: usize,
    eos: u32,
}

/// The compiled grammar outlives its matchers: the adapter frees it last.
pub struct Matcher {
    compiled: &'static Compiled,
    state: u32,
    mask: Vec<u32>,
    ended: bool,
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_vocabulary(
    _: *const u8, tokens: &Tokens, error: *mut c_char, error_len: usize,
) -> *mut Vocabulary {
    made(error, error_len, || {
        let mut found = Tokenizer::new(tokens.eos);
        for (id, bytes) in tokens.text().filter(|(id, _)| *id != tokens.eos) {
            found.try_insert(bytes, id).map_err(|e| e.to_string())?;
        }
        Ok(Vocabulary { tokens: found, words: tokens.words(), eos: tokens.eos })
    })
}

/// outlines-core writes one pattern of white space wherever some may stand. Where it is fixed, a mark
/// goes there, which no schema has, and is replaced by what belongs there.
fn regex(white_space: &str, schema: &str) -> outlines_core::Result<String> {
    const MARK: &str = "\u{E000}";
    let after = match white_space {
        "flexible" => return json_schema::regex_from_str(schema, Some(r"[ \t\n\r]*"), None),
        "spaced" => " ",
        _ => "",
    };
    let marked = json_schema::regex_from_str(schema, Some(MARK), None)?;
    // A comma has marks around it between properties, and one behind it between items.
    let comma = format!(",{after}");
    let commas = marked.replace(&format!("{MARK},{MARK}"), &comma);
    let commas = commas.replace(&format!("{MARK},"), &comma).replace(&format!(",{MARK}"), &comma);
    Ok(commas.replace(&format!("{MARK}:"), &format!(":{after}")).replace(MARK, ""))
}

/// A schema comes with a line before it that names the white space.
#[unsafe(no_mangle)]
pub extern "C" fn lbp_compile(
    v: &Vocabulary, kind: u32, source: *const c_char, error: *mut c_char, error_len: usize,
) -> *mut Compiled {
    made(error, error_len, || {
        let (space, schema) = text(source)?.split_once('\n').ok_or("no white space is given")?;
        if kind != 0 {
            return Err("outlines-core takes JSON schemas alone".into());
        }
        let regex = regex(space, schema).map_err(|e| e.to_string())?;
        let index = Index::new(&regex, &v.tokens).map_err(|e| e.to_string())?;
        Ok(Compiled { index, words: v.words, eos: v.eos })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_start(
    compiled: &'static Compiled, error: *mut c_char, error_len: usize,
) -> *mut Matcher {
    made(error, error_len, || {
        let (state, mask) = (compiled.index.initial_state(), vec![0; compiled.words]);
        Ok(Matcher { compiled, state, mask, ended: false })
    })
}

/// As outlines-core's own `Guide.write_mask_into`.
#[unsafe(no_mangle)]
pub extern "C" fn lbp_mask(m: &mut Matcher) -> i32 {
    m.mask.fill(0);
    for &token in m.compiled.index.allowed_tokens_iter(&m.state).into_iter().flatten() {
        m.mask[token as usize / 32] |= 1 << (token % 32);
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_finish(m: &mut Matcher) -> *const u32 {
    m.mask.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_accept(m: &mut Matcher, token: u32) -> i32 {
    if token == m.compiled.eos {
        m.ended = m.compiled.index.is_final_state(&m.state);
        return !m.ended as i32;
    }
    match m.compiled.index.next_state(&m.state, &token) {
        Some(state) => m.state = state,
        None => return 1,
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_complete(m: &Matcher) -> bool {
    m.ended || m.compiled.index.is_final_state(&m.state)
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_stopped(m: &Matcher) -> bool {
    m.ended
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_reset(m: &mut Matcher) -> i32 {
    m.state = m.compiled.index.initial_state();
    m.ended = false;
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn lbp_fork(m: &Matcher) -> *mut Matcher {
    Box::into_raw(Box::new(Matcher { mask: m.mask.clone(), ..*m }))
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
