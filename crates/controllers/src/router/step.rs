use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use portcullis_core::Problem;

/// What has to be done with one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<T> {
    /// Nothing.
    Nothing,
    /// It has to be made.
    Create(T),
    /// It has to be this.
    Change(T),
    /// It has to go.
    Delete,
    /// Somebody else's is in its place.
    Foreign(Problem),
}

/// What has to be done with one object, by what is wanted and what is there. What does not belong to us is never touched,
/// and only in the way if something is wanted in its place.
pub fn step<T>(
    want: Option<T>,
    have: Option<&T>,
    is_ours: impl Fn(&ObjectMeta) -> bool,
    changed: impl Fn(&T, &T) -> Option<T>,
) -> Step<T>
where
    T: Resource + Metadata<Ty = ObjectMeta>,
{
    match (want, have) {
        (Some(want), None) => Step::Create(want),
        (Some(_), Some(have)) if !is_ours(have.metadata()) => Step::Foreign(foreign(have)),
        (Some(want), Some(have)) => changed(have, &want).map_or(Step::Nothing, Step::Change),
        (None, Some(have)) if is_ours(have.metadata()) => Step::Delete,
        (None, _) => Step::Nothing,
    }
}

fn foreign<T: Resource + Metadata<Ty = ObjectMeta>>(have: &T) -> Problem {
    let metadata = have.metadata();
    let name = metadata.name.as_deref().unwrap_or_default();
    let place =
        metadata.namespace.as_ref().map_or_else(|| name.to_owned(), |found| format!("{found}/{name}"));
    Problem::new(
        format!("{} {place} is not ours, and one of that name is needed.", T::KIND),
        "It was left alone.",
        "Delete it, or create the IngressController under another name.",
    )
}
