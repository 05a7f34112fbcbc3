use std::fmt;

use argon2::password_hash::phc;
use argon2::{Argon2, Params, PasswordHasher, PasswordVerifier};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::secret::HIDDEN;

/// What a password is recognised by: an argon2 hash in PHC form. It is never printed, since a weak password can be
/// guessed from it.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

/// The most that a check may take: KiB, and passes over them.
const MOST_MEMORY: u32 = 1 << 20;
const MOST_PASSES: u32 = 100;

impl PasswordHash {
    /// Takes a hash in PHC form. What is wrong is said without it: it may be a password, written in the wrong place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!(
                "expected an argon2 hash in PHC form ($argon2id$v=19$m=…,t=…,p=…$salt$hash), such as \
                 `portcullis hash-password` prints: {why}"
            ))
        };
        let Ok(hash) = phc::PasswordHash::new(text) else { return wrong("this is not in that form") };
        if !hash.algorithm.as_str().starts_with("argon2") {
            return wrong("this is the hash of another algorithm");
        }
        if hash.salt.is_none() || hash.hash.is_none() {
            return wrong("its salt or its hash is missing");
        }
        let Ok(params) = Params::try_from(&hash) else {
            return wrong("its parameters are not ones that argon2 has");
        };
        // A check that takes all memory, or all day, would end the server: anybody may ask for one.
        if params.m_cost() > MOST_MEMORY || params.t_cost() > MOST_PASSES {
            return wrong(
                "a check of it would take more than 1 GiB, or more than 100 passes over its memory",
            );
        }
        Ok(PasswordHash(text.to_owned()))
    }

    /// The hash of a password, with a salt of its own. It takes some milliseconds, and some megabytes.
    pub fn of(password: &str) -> Self {
        let salt = random::<16>();
        let hash: phc::PasswordHash = Argon2::default()
            .hash_password_with_salt(password.as_bytes(), &salt)
            .expect("argon2's own parameters and a salt of 16 bytes are good");
        PasswordHash(hash.to_string())
    }

    /// The hash as it is written. Only for who stores it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether it is the password's hash. It takes as long as the hash's parameters say.
    pub(super) fn matches(&self, password: &str) -> bool {
        Argon2::default().verify_password(password.as_bytes(), self.0.as_str()).is_ok()
    }

    /// The part of a hash in PHC form that says how much work a check is.
    pub(super) fn cost(text: &str) -> &str {
        let end = text.match_indices('$').nth(3).map_or(text.len(), |(end, _)| end);
        &text[..end]
    }

    /// What tells it from the hash of another password, and from itself in another epoch, and gives nothing away.
    pub(super) fn fingerprint(&self, epoch: u64) -> String {
        // Users of the configuration have no epochs, and their tokens are what they always were.
        let text = if epoch == 0 { self.0.clone() } else { format!("{}#{epoch}", self.0) };
        BASE64_URL_SAFE_NO_PAD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..6])
    }
}

/// Bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    bytes
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for PasswordHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for PasswordHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = PasswordHash;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an argon2 hash in PHC form")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PasswordHash, E> {
                PasswordHash::parse(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_recognised_and_another_is_not() {
        let hash = PasswordHash::of("correct horse");
        assert!(hash.matches("correct horse"));
        assert!(!hash.matches("correct horse "));
        assert!(!hash.matches(""));
        assert_eq!(PasswordHash::parse(hash.reveal()), Ok(hash.clone()));
        assert_ne!(hash.fingerprint(0), PasswordHash::of("correct horse").fingerprint(0));
        assert_ne!(hash.fingerprint(0), hash.fingerprint(1));
    }

    #[test]
    fn what_is_no_hash_is_refused_and_not_repeated() {
        for wrong in [
            "hunter2",
            "",
            "$2b$12$abcdefghijklmnopqrstuv",
            "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ",
            "$argon2id$v=19$m=4294967295,t=1,p=1$c29tZXNhbHQ$FOig+vISZ3yS71gn1f9RXQ",
            "$argon2id$v=19$m=64,t=101,p=1$c29tZXNhbHQ$FOig+vISZ3yS71gn1f9RXQ",
        ] {
            let error = PasswordHash::parse(wrong).unwrap_err();
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
        assert_eq!(format!("{:?}", PasswordHash::of("x")), HIDDEN);
        assert_eq!(serde_json::to_value(PasswordHash::of("x")).unwrap(), HIDDEN);
    }
}
