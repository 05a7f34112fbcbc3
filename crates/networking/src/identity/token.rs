//! Tokens: what they say, signed, so that it can be believed without asking anybody.
//!
//! A token is the URL-safe base64 of its claims in JSON and of their HMAC-SHA256. What is not in it (roles, names,
//! whether the user is still there) is looked up when it is used.

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::password::random;
use super::secret::HIDDEN;

/// Signed before the claims: a key that signs something else too cannot be made to sign a token. The number is that
/// of the claims' form.
const CONTEXT: &[u8] = b"portcullis token 1\n";
const SIGNATURE: usize = 32;
/// Nothing that was signed here is longer.
const LONGEST: usize = 2048;

/// How somebody showed who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Method {
    Password,
    Token,
}

/// What a token says. Names are short, since they travel with every request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    /// The token's id, which is also what it is called in audits. It is no secret.
    #[serde(rename = "i")]
    pub(super) id: String,
    /// The id of the first of the tokens that it was made from.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub(super) chain: Option<String>,
    #[serde(rename = "u")]
    pub(super) user: String,
    /// The project that it is for, if it is for one.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub(super) project: Option<String>,
    #[serde(rename = "m")]
    pub(super) methods: Vec<Method>,
    /// In seconds since 1970.
    #[serde(rename = "t")]
    pub(super) issued: i64,
    #[serde(rename = "e")]
    pub(super) expires: i64,
    /// The fingerprint of the user's password: with a new one, the tokens of the old one end.
    #[serde(rename = "w")]
    pub(super) password: String,
}

impl Claims {
    /// An id for a new token.
    pub(super) fn new_id() -> String {
        BASE64_URL_SAFE_NO_PAD.encode(random::<16>())
    }
}

/// A signed token. Only who asked for it sees it.
pub(super) struct Token(String);

impl Token {
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Signs tokens, and knows its own.
#[derive(Clone)]
pub(super) struct Signer(hmac::Key);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Signer {
    pub(super) fn new(secret: &[u8]) -> Self {
        Signer(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// A token that says this.
    pub(super) fn sign(&self, claims: &Claims) -> Token {
        let mut signed = serde_json::to_vec(claims).expect("claims are texts and numbers");
        let signature = self.signature(&signed);
        signed.extend_from_slice(signature.as_ref());
        Token(BASE64_URL_SAFE_NO_PAD.encode(signed))
    }

    fn signature(&self, claims: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(CONTEXT);
        context.update(claims);
        context.sign()
    }

    /// What a token says, if it was signed here and has not expired.
    pub(super) fn read(&self, token: &str, now: i64) -> Option<Claims> {
        if token.len() > LONGEST {
            return None;
        }
        let signed = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let (claims, signature) = signed.split_at_checked(signed.len().checked_sub(SIGNATURE)?)?;
        let expected = self.signature(claims);
        // In the same time, wherever they differ.
        aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), signature).ok()?;
        let claims: Claims = serde_json::from_slice(claims).ok()?;
        (now < claims.expires).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claims() -> Claims {
        Claims {
            id: Claims::new_id(),
            chain: None,
            user: "7a0ee2e1f0b44d5c8a3b1f8f0c1d2e3f".into(),
            project: Some("0123456789abcdef0123456789abcdef".into()),
            methods: vec![Method::Password],
            issued: 1_000,
            expires: 4_600,
            password: "abcdefgh".into(),
        }
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        let signer = Signer::new(&[7; 32]);
        let token = signer.sign(&claims());
        for (now, valid) in [(0, true), (1_000, true), (4_599, true), (4_600, false), (i64::MAX, false)] {
            assert_eq!(signer.read(token.reveal(), now).is_some(), valid, "{now}");
        }
        assert!(token.reveal().len() < 400, "{} characters are many", token.reveal().len());
        assert!(token.reveal().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }

    #[test]
    fn only_what_was_signed_with_the_key_is_believed() {
        let signer = Signer::new(&[7; 32]);
        let token = signer.sign(&claims());
        assert_eq!(Signer::new(&[8; 32]).read(token.reveal(), 1_000), None);
        for wrong in ["", "a", "gAAAAABlCfake", "not base64!", "=", "\u{1f980}", &"A".repeat(4000)] {
            assert_eq!(signer.read(wrong, 1_000), None, "{wrong}");
        }
        let longer = format!("{}AAAA", token.reveal());
        assert_eq!(signer.read(&longer, 1_000), None);
    }

    #[test]
    fn nothing_prints_a_token_or_its_key() {
        let signer = Signer::new(&[7; 32]);
        let token = signer.sign(&claims());
        assert_eq!(format!("{signer:?} {token:?}"), "(hidden) (hidden)");
    }

    proptest! {
        #[test]
        fn what_was_said_comes_back(
            user in ".{0,64}",
            project in proptest::option::of("[0-9a-f]{32}"),
            issued in 0_i64..10_000_000_000,
            lifetime in 1_i64..1_000_000,
        ) {
            let signer = Signer::new(&[1; 32]);
            let said = Claims { user, project, issued, expires: issued + lifetime, ..claims() };
            prop_assert_eq!(signer.read(signer.sign(&said).reveal(), issued), Some(said));
        }

        #[test]
        fn one_changed_character_is_noticed(place in 0_usize..400, to in "[A-Za-z0-9_-]") {
            let signer = Signer::new(&[7; 32]);
            let said = claims();
            let token = signer.sign(&said);
            let place = place % token.reveal().len();
            let mut changed = token.reveal().to_owned();
            changed.replace_range(place..=place, &to);
            prop_assert_eq!(signer.read(&changed, 1_000), (changed == token.reveal()).then_some(said));
        }
    }
}
