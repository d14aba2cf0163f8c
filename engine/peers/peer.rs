//! What both shims share: the vocabulary as it comes from C, and errors as they go back.

use std::ffi::{c_char, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// `lb_peer_vocab` of csrc/peers.h.
#[repr(C)]
pub struct Tokens {
    n_tokens: u32,
    lens: *const u32,
    bytes: *const u8,
    marked: *const u8,
    pub eos: u32,
}

impl Tokens {
    /// Words of 32 bits in a mask.
    pub fn words(&self) -> usize {
        self.n_tokens.div_ceil(32) as usize
    }

    /// The tokens that are text: id and bytes. Special ones and those without bytes are none.
    pub fn text(&self) -> impl Iterator<Item = (u32, Vec<u8>)> + '_ {
        let mut at = 0;
        (0..self.n_tokens as usize).filter_map(move |id| unsafe {
            let len = *self.lens.add(id) as usize;
            let bytes = std::slice::from_raw_parts(self.bytes.add(at), len).to_vec();
            at += len;
            (len > 0 && *self.marked.add(id) == 0).then_some((id as u32, bytes))
        })
    }
}

pub fn text<'a>(data: *const c_char) -> Result<&'a str, String> {
    unsafe { CStr::from_ptr(data) }.to_str().map_err(|e| e.to_string())
}

/// Box what a function makes; write its error, or a panic's message, into `error`.
pub fn made<T>(
    error: *mut c_char, error_len: usize, make: impl FnOnce() -> Result<T, String>,
) -> *mut T {
    let result = catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", words.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
    });
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(why) => {
            let n = why.len().min(error_len - 1);
            unsafe {
                std::ptr::copy_nonoverlapping(why.as_ptr().cast(), error, n);
                *error.add(n) = 0;
            }
            std::ptr::null_mut()
        }
    }
}
