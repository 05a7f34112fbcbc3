//! Users that administrators create, and the roles that they give them.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use portcullis_networking::{Authenticate, Error};
use portcullis_ovn::objects;
use portcullis_testkit::parts::ovn::Ovn;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{Answer, DEMO, Server, northbound, store};

/// A server, and what its administrator does there.
struct Office {
    server: Server,
    admin: String,
}

impl Office {
    async fn open(ovn: &Ovn) -> Self {
        let server = Server::start(ovn).await;
        let admin = server.admin().await;
        Office { server, admin }
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.server.ask(method, path, &self.admin, body).await
    }

    async fn status(&self, method: &str, path: &str) -> u16 {
        self.ask(method, path, None).await.status.as_u16()
    }

    async fn create(&self, user: Value) -> Answer {
        self.ask("POST", "/v3/users", Some(json!({ "user": user }))).await
    }

    /// The path of a new user.
    async fn user(&self, name: &str, password: &str) -> String {
        let created = self.create(json!({"name": name, "password": password})).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
        format!("/v3/users/{}", created.body["user"]["id"].as_str().unwrap())
    }

    async fn update(&self, path: &str, user: Value) -> Answer {
        self.ask("PATCH", path, Some(json!({ "user": user }))).await
    }

    async fn role(&self, name: &str) -> String {
        let roles = self.ask("GET", &format!("/v3/roles?name={name}"), None).await;
        roles.body["roles"][0]["id"].as_str().unwrap().to_owned()
    }

    /// Where a role of a user in a project is.
    async fn grant(&self, project: &str, user: &str, role: &str) -> String {
        let role = self.role(role).await;
        format!("/v3/projects/{project}/users/{}/roles/{role}", user.trim_start_matches("/v3/users/"))
    }
}

fn demo() -> Value {
    json!({"project": {"id": DEMO}})
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_create_change_and_delete_users() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    let created = office
        .create(json!({
            "name": "bob", "password": "bob secret", "email": "bob@example.com", "description": "of sales",
            "default_project_id": DEMO, "options": {"ignore_password_expiry": true}, "shoe_size": 46,
        }))
        .await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let user = &created.body["user"];
    let id = user["id"].as_str().unwrap();
    let path = format!("/v3/users/{id}");
    let expected = json!({
        "id": id, "name": "bob", "domain_id": "default", "enabled": true, "email": "bob@example.com",
        "description": "of sales", "default_project_id": DEMO, "password_expires_at": null,
        "options": {"ignore_password_expiry": true},
        "links": {"self": format!("http://cloud.example:35357{path}")},
    });
    assert_eq!((id.len(), user), (32, &expected));
    assert_eq!(office.ask("GET", &path, None).await.body["user"], *user);

    for (body, expected) in [
        (json!({"name": "bob"}), 409),
        (json!({"name": "ann"}), 409),
        (json!({"name": "bob", "domain_id": "other"}), 201),
        (json!({"name": "quiet", "password": null}), 201),
        (json!({"name": "off", "enabled": false}), 201),
        (json!({"name": "x", "domain_id": "nowhere"}), 404),
    ] {
        assert_eq!(office.create(body.clone()).await.status.as_u16(), expected, "{body}");
    }
    let names = |answer: Answer| answer.names("users").join(" ");
    for (query, expected) in [
        ("name=bob", "bob bob"),
        ("name=bob&domain_id=other", "bob"),
        ("enabled=false", "off"),
        ("name=ann&enabled=true", "ann"),
        ("name=nobody", ""),
    ] {
        assert_eq!(names(office.ask("GET", &format!("/v3/users?{query}"), None).await), expected, "{query}");
    }

    let updated = office
        .update(&path, json!({"name": "rob", "email": null, "options": {"ignore_password_expiry": null}}))
        .await;
    assert_eq!(updated.status, StatusCode::OK);
    let user = &updated.body["user"];
    assert_eq!((&user["name"], user.get("email"), &user["options"]), (&json!("rob"), None, &json!({})));
    assert_eq!(user["description"], "of sales");
    for (change, expected) in [
        (json!({"name": "ann"}), 409),
        (json!({"name": ""}), 400),
        (json!({"domain_id": "other"}), 400),
        (json!({"domain_id": "default"}), 200),
        (json!({}), 200),
    ] {
        assert_eq!(office.update(&path, change.clone()).await.status.as_u16(), expected, "{change}");
    }
    assert_eq!(office.status("DELETE", &path).await, 204);
    for method in ["GET", "DELETE"] {
        assert_eq!(office.status(method, &path).await, 404, "{method}");
    }
    assert_eq!(office.update(&path, json!({"name": "z"})).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_given_and_taken() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    let bob = office.user("bob", "bob secret").await;
    assert_eq!(
        office.server.log_in("bob", "bob secret", json!("unscoped")).await.status,
        StatusCode::CREATED
    );
    let refused = office.server.log_in("bob", "bob secret", demo()).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);

    let grant = office.grant(DEMO, &bob, "member").await;
    let (roles, _) = grant.rsplit_once('/').unwrap();
    assert_eq!(office.status("GET", &grant).await, 404);
    for (method, expected) in [("PUT", 204), ("PUT", 204), ("GET", 204), ("HEAD", 204)] {
        assert_eq!(office.status(method, &grant).await, expected, "{method}");
    }
    assert_eq!(office.ask("GET", roles, None).await.names("roles"), ["member"]);
    let token = office.server.log_in("bob", "bob secret", demo()).await;
    assert_eq!(token.body["token"]["roles"].as_array().unwrap().len(), 2, "{}", token.body);
    let caller = office.server.local.caller(&token.token()).await.unwrap();
    assert!(caller.is_member() && !caller.is_admin());
    let reader = office.grant(DEMO, &bob, "reader").await;
    assert_eq!(office.status("PUT", &reader).await, 204);
    let id = bob.trim_start_matches("/v3/users/");
    for (query, expected) in [("", 2), ("&effective", 2), ("&scope.project.id=nowhere", 0)] {
        let path = format!("/v3/role_assignments?user.id={id}{query}");
        let listed = office.ask("GET", &path, None).await;
        assert_eq!(listed.body["role_assignments"].as_array().unwrap().len(), expected, "{}", listed.body);
    }
    let projects = office.ask("GET", &format!("{bob}/projects"), None).await;
    assert_eq!(projects.names("projects"), ["demo"]);

    let by_itself =
        office.server.ask("PUT", &office.grant(DEMO, &bob, "admin").await, &token.token(), None).await;
    assert_eq!(by_itself.status, StatusCode::FORBIDDEN);
    for path in [
        grant.replace(DEMO, "nowhere"),
        grant.replace(id, "nobody"),
        format!("{roles}/nothing"),
        format!("{grant}/more"),
    ] {
        for method in ["PUT", "GET", "DELETE"] {
            assert_eq!(office.status(method, &path).await, 404, "{method} {path}");
        }
    }
    for (path, expected) in [(&grant, 204), (&grant, 404), (&reader, 204)] {
        assert_eq!(office.status("DELETE", path).await, expected);
    }
    assert_eq!(office.server.local.caller(&token.token()).await, Err(Error::unauthorized()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_project_leaves_no_roles_behind() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    let project = json!({"project": {"name": "shop"}});
    let project = office.ask("POST", "/v3/projects", Some(project)).await.body["project"]["id"].clone();
    let project = project.as_str().unwrap();
    let bob = office.user("bob", "bob secret").await;
    for place in [project, DEMO] {
        assert_eq!(office.status("PUT", &office.grant(place, &bob, "member").await).await, 204);
    }
    assert_eq!(office.update(&bob, json!({"default_project_id": project})).await.status, StatusCode::OK);
    let token = office.server.log_in("bob", "bob secret", Value::Null).await;
    assert_eq!(token.body["token"]["project"]["name"], "shop", "who names no project gets its own");

    assert_eq!(office.status("DELETE", &format!("/v3/projects/{project}")).await, 204);
    assert_eq!(office.server.local.caller(&token.token()).await, Err(Error::unauthorized()));
    let store = store(&ovn).await;
    let model = store.model();
    let stored = model.named::<objects::User>("bob").next().unwrap();
    let places: Vec<&str> = stored.assignments.iter().map(|grant| grant.project.as_str()).collect();
    assert_eq!((places.as_slice(), stored.default_project.as_str()), ([DEMO].as_slice(), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_the_configuration_stay() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    let ann = office.ask("GET", "/v3/users?name=ann", None).await.body["users"][0]["id"].clone();
    let path = format!("/v3/users/{}", ann.as_str().unwrap());
    let grant = office.grant(DEMO, &path, "member").await;
    assert_eq!(office.status("GET", &grant).await, 204);
    let passwords = json!({"user": {"original_password": "ann secret", "password": "new"}});
    for (method, path, body) in [
        ("DELETE", path.clone(), None),
        ("PATCH", path.clone(), Some(json!({"user": {"enabled": false}}))),
        ("PUT", office.grant(DEMO, &path, "admin").await, None),
        ("DELETE", grant, None),
        ("POST", format!("{path}/password"), Some(passwords)),
    ] {
        let answer = office.ask(method, &path, body).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}");
        let message = answer.body["error"]["message"].as_str().unwrap();
        assert!(message.contains("identity.local.users"), "{message}");
    }
    office.server.ann().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_no_administrator_changes_only_its_own_password() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    let bob = office.user("bob", "bob secret").await;
    let ann = office.server.ann().await;
    let user = || Some(json!({"user": {"name": "x"}}));
    for (method, path, body) in [
        ("POST", "/v3/users", user()),
        ("GET", "/v3/users", None),
        ("GET", &bob, None),
        ("PATCH", &bob, user()),
        ("DELETE", &bob, None),
    ] {
        let expected = [(ann.as_str(), StatusCode::FORBIDDEN), ("", StatusCode::UNAUTHORIZED)];
        for (token, expected) in expected {
            assert_eq!(
                office.server.ask(method, path, token, body.clone()).await.status,
                expected,
                "{method}"
            );
        }
    }

    let token = office.server.log_in("bob", "bob secret", Value::Null).await.token();
    assert_eq!(office.server.get(&bob, &token).await.status, StatusCode::OK);
    let change = |id: &str, old: &str, new: Value| {
        let body = json!({"user": {"original_password": old, "password": new}});
        let path = format!("{id}/password");
        let server = &office.server;
        async move { server.ask("POST", &path, "", Some(body)).await.status.as_u16() }
    };
    for (id, old, new, expected) in [
        (bob.as_str(), "wrong", json!("new secret"), 401),
        ("/v3/users/nobody", "bob secret", json!("new secret"), 401),
        (&bob, "bob secret", json!(""), 400),
        (&bob, "bob secret", json!(null), 400),
        (&bob, "bob secret", json!("new secret"), 204),
        (&bob, "bob secret", json!("newer secret"), 401),
    ] {
        assert_eq!(change(id, old, new.clone()).await, expected, "{old} {new}");
    }
    let answer = office.server.get(&bob, &token).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "a new password ends the tokens of the old one");
    assert_eq!(office.server.log_in("bob", "bob secret", Value::Null).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(office.server.log_in("bob", "new secret", Value::Null).await.status, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_end_with_their_user_and_do_not_come_back() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    let bob = office.user("bob", "first").await;
    let log_in = |password: &'static str| office.server.log_in("bob", password, Value::Null);
    let valid = async |token: &str| office.server.local.caller(token).await.is_ok();

    let token = log_in("first").await.token();
    assert!(valid(&token).await);
    office.update(&bob, json!({"password": "second"})).await;
    assert!(!valid(&token).await);
    let token = log_in("second").await.token();
    office.update(&bob, json!({"enabled": false})).await;
    assert!(!valid(&token).await);
    assert_eq!(log_in("second").await.status, StatusCode::UNAUTHORIZED);
    office.update(&bob, json!({"enabled": true})).await;
    assert!(!valid(&token).await, "who is let in again logs in again");
    let token = log_in("second").await.token();
    assert!(valid(&token).await);
    office.update(&bob, json!({"password": null})).await;
    assert!(!valid(&token).await);
    for password in ["second", ""] {
        assert_eq!(log_in(password).await.status, StatusCode::UNAUTHORIZED);
    }
    office.update(&bob, json!({"password": "third"})).await;
    let token = log_in("third").await.token();
    assert_eq!(office.status("DELETE", &bob).await, 204);
    assert!(!valid(&token).await);
    assert_eq!(log_in("third").await.status, StatusCode::UNAUTHORIZED);
    office.user("bob", "third").await;
    assert!(!valid(&token).await, "another user of the name is another user");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_the_same_on_every_server_and_after_a_restart() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    let second = Server::start(&ovn).await;
    let bob = office.user("bob", "bob secret").await;
    assert_eq!(office.status("PUT", &office.grant(DEMO, &bob, "member").await).await, 204);
    let soon = Instant::now() + Duration::from_secs(60);
    while second.log_in("bob", "bob secret", demo()).await.status != StatusCode::CREATED {
        assert!(Instant::now() < soon, "the other server does not know the user");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let token = office.server.log_in("bob", "bob secret", demo()).await.token();
    second.local.caller(&token).await.unwrap();
    drop((office, second));
    let third = Server::start(&ovn).await;
    assert_eq!(third.local.caller(&token).await.unwrap().project, DEMO);
    third.token("bob", "bob secret", "demo").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stored_is_refused() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    for user in [
        json!({}),
        json!([]),
        json!("bob"),
        json!(null),
        json!({"name": ""}),
        json!({"name": " "}),
        json!({"name": null}),
        json!({"name": 7}),
        json!({"name": "x".repeat(256)}),
        json!({"name": "a\0b"}),
        json!({"name": "x", "email": "\0"}),
        json!({"name": "x", "description": "\0"}),
        json!({"name": "x", "default_project_id": "\0"}),
        json!({"name": "x", "password": ""}),
        json!({"name": "x", "password": 7_654_321}),
        json!({"name": "x", "password": {"is": "hidden 7654321"}}),
        json!({"name": "x", "enabled": "yes"}),
        json!({"name": "x", "options": []}),
        json!({"name": "x", "options": {"multi_factor_auth_enabled": true}}),
        json!({"name": "x", "options": {"ignore_password_expiry": "7654321"}}),
    ] {
        let answer = office.create(user.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{user}");
        assert!(!answer.body.to_string().contains("7654321"), "what may be secret is not repeated");
    }
    let all = office.ask("GET", "/v3/users", None).await;
    assert_eq!(all.names("users").len(), 6, "nothing was stored: {}", all.body);
    let odd = office.create(json!({"name": "Zoë \u{1f980}\n\u{ffff}", "password": "\0 \u{1f980}"})).await;
    assert_eq!(odd.status, StatusCode::CREATED);
    let again = office.server.log_in("Zoë \u{1f980}\n\u{ffff}", "\0 \u{1f980}", Value::Null).await;
    assert_eq!(again.status, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_guesses_is_sent_away_and_comes_in_later() {
    let (_directory, ovn) = northbound();
    let office = Office::open(&ovn).await;
    // A hash of full strength: each check takes a while.
    office.user("bob", "bob secret").await;
    let mut guesses = JoinSet::new();
    for _ in 0..200 {
        let server = office.server.clone();
        guesses.spawn(async move { server.log_in("bob", "wrong", Value::Null).await });
    }
    let (mut refused, mut sent_away) = (0, 0);
    while let Some(answer) = guesses.join_next().await {
        let answer = answer.unwrap();
        match answer.status {
            StatusCode::UNAUTHORIZED => refused += 1,
            StatusCode::SERVICE_UNAVAILABLE => {
                assert_eq!(answer.headers["retry-after"], "1");
                sent_away += 1;
            }
            other => panic!("{other}: {}", answer.body),
        }
    }
    assert!(refused >= 64 && sent_away > 0, "{refused} were refused, {sent_away} sent away");
    let login = office.server.log_in("bob", "bob secret", json!("unscoped")).await;
    assert_eq!(login.status, StatusCode::CREATED, "{}", login.body);
}
