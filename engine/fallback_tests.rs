//! What the state is after bytes, masks and rollbacks; what texts are accepted is tested outside.

use std::mem::size_of;

use toktrie::{ApproximateTokEnv, InferenceCapabilities};

use super::*;
use crate::api::TopLevelGrammar;
use crate::{ParserFactory, TokenParser};

const OPTION: &str = "%llguidance {\"greedy_lexeme_fallback\": true, \"no_forcing\": true}\n";
const LISTED: &str = "start: STEM SUFFIX\nSTEM: \"list\" | \"listen\"\nSUFFIX: \"ed\"\n";
// Each newline could be a lexeme, or all of them the beginning of one.
const LINES: &str = "start: (NL | CMT)* END\nNL: /\\n/\nCMT: /\\n[ \\n]*#[^\\n]*/\nEND: /~/\n";

fn parser(grammar: &str, threshold: u32) -> TokenParser {
    let env = ApproximateTokEnv::single_byte_env();
    let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]).unwrap();
    let grammar = TopLevelGrammar::from_lark(format!("{OPTION}{grammar}"));
    let mut parser = factory.create_parser(grammar).unwrap();
    parser.parser.set_fallback_threshold(threshold);
    parser.start_without_prompt();
    parser
}

fn read(parser: &mut TokenParser, text: &str) {
    for byte in text.bytes() {
        let mask = parser.compute_mask().unwrap();
        assert!(mask.is_allowed(u32::from(byte)), "{:?}", byte as char);
        assert_eq!(parser.consume_token(u32::from(byte)).unwrap(), 0);
    }
}

fn fallback(parser: &TokenParser) -> &Fallback {
    &parser.parser.state.fallback
}

#[test]
fn marks_say_what_the_stack_does_not() {
    let mut parser = parser("start: A B\nA: /a|abc+/\nB: /bde?/\n", 64);
    read(&mut parser, "a");
    assert!(fallback(&parser).marks.is_empty());
    read(&mut parser, "b");
    let mark = fallback(&parser).marks.last().unwrap();
    assert!(matches!(
        mark.change,
        Change::Passed(Boundary { at: 1, .. })
    ));
    let mut longer = parser.clone();
    read(&mut longer, "c");
    let mark = fallback(&longer).marks.last().unwrap();
    assert!(matches!(mark.change, Change::Lost) && mark.at == 3);
    read(&mut parser, "d");
    let mark = fallback(&parser).marks.last().unwrap();
    let jump = mark.jump().unwrap();
    assert_eq!((mark.at, jump.lexeme_from, jump.level), (3, 2, 0));
    assert!(jump.boundary.is_none());
}

#[test]
fn a_rollback_takes_marks_back() {
    let mut parser = parser(LISTED, 64);
    read(&mut parser, "listed");
    parser.rollback(1).unwrap();
    assert!(matches!(
        fallback(&parser).marks.last().unwrap().change,
        Change::Passed(_)
    ));
    parser.rollback(1).unwrap();
    assert!(fallback(&parser).marks.is_empty());
    read(&mut parser, "ened");
}

#[test]
fn a_mask_leaves_nothing_of_its_walk() {
    for threshold in [64, 0] {
        let mut parser = parser(LISTED, threshold);
        read(&mut parser, "liste");
        let before = parser.parser.state.clone();
        let mask = parser.compute_mask().unwrap();
        assert_eq!(mask.to_list(), [u32::from(b'd'), u32::from(b'n')]);
        let after = &parser.parser.state;
        assert_eq!(after.lexer_stack.len(), before.lexer_stack.len());
        assert_eq!(after.num_rows(), before.num_rows());
        assert_eq!(after.fallback.marks.len(), before.fallback.marks.len());
        assert!(after.fallback.walk.leaves == Leaves::Nothing);
        assert!(after.fallback.walk.siblings.is_none());
        assert!(after.fallback.walk.going_on_first.is_none());
        assert!(after.fallback.walk.displaced.is_empty());
    }
}

#[test]
fn a_level_is_of_the_walk_or_kept_in_step() {
    for (threshold, term) in [(64, Term::OfWalk), (0, Term::InStep)] {
        let mut parser = parser(LISTED, threshold);
        read(&mut parser, "liste");
        parser.compute_mask().unwrap();
        let levels = &fallback(&parser).levels;
        assert_eq!(levels.len(), 1);
        assert!(levels[0].term == term && levels[0].reading.goes_on());
        // Once a boundary is lost, so is what was read after it.
        read(&mut parser, "n");
        assert!(fallback(&parser).levels.is_empty());
    }
}

#[test]
fn a_run_of_boundaries_is_one_level() {
    let mut parser = parser(LINES, 64);
    for n in 0..300 {
        read(&mut parser, "\n");
        assert!(fallback(&parser).levels.len() <= 1, "{n}");
    }
}

#[test]
fn of_the_snapshots_few_are_kept_and_near() {
    let mut parser = parser(LINES, 0);
    read(&mut parser, &"\n".repeat(1000));
    let bases: Vec<usize> = fallback(&parser).snapshots.iter().map(|s| s.base).collect();
    // Two at most for each power of four, and one not far below whatever is rolled back to.
    assert!(bases.len() <= 2 * 6, "{bases:?}");
    let base = parser.parser.state.lexer_stack.len();
    for back in 1..base / 2 {
        let to = base - back;
        let known = bases.iter().rfind(|&&known| known <= to);
        assert!(to - known.unwrap_or(&0) <= 4 * back, "{back}: {bases:?}");
    }
}

#[test]
fn a_dead_reading_and_one_that_gives_bytes_back_go_no_further() {
    let top = LexerState {
        row_idx: 3,
        lexer_state: StateID::DEAD,
        byte: Some(b'a'),
    };
    let alive = Reading::of(top, 1, None);
    let given_back = Reading {
        next: Next::GivenBack(1),
        ..alive
    };
    assert!(alive.goes_on() && !given_back.goes_on() && !Reading::dead(3).goes_on());
}

#[test]
fn the_threshold_lies_where_the_limits_had_padding() {
    // The C API hands the limits about by value, and callers may have been compiled before.
    assert_eq!(
        size_of::<ParserLimits>(),
        4 * size_of::<usize>() + 2 * size_of::<u64>() + 8
    );
    assert_eq!(ParserLimits::default().fallback_threshold, 64);
}

#[test]
fn sets_of_bytes() {
    let mut set = ByteSet::of(|byte| byte % 64 == 63);
    assert_eq!(
        (0..=255).filter(|&b| set.has(b)).collect::<Vec<u8>>(),
        [63, 127, 191, 255]
    );
    set.add(ByteSet::only(64));
    assert!(set.has(64) && !set.has(0) && (0..=255).all(|b| ByteSet::all().has(b)));
}

#[test]
fn states_seen_are_those_of_one_byte() {
    let (one, other) = (StateID::new(1), StateID::new(2));
    for levels in [1, MANY + 1] {
        let mut seen = StatesSeen::default();
        seen.begin(levels);
        seen.add(one);
        assert!(seen.has(one) && !seen.has(other));
        seen.begin(levels);
        assert!(!seen.has(one));
    }
}
