//! Projects, and what is only read.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::{DEMO, Server, northbound};

#[tokio::test(flavor = "multi_thread")]
async fn administrators_create_change_and_delete_projects() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let admin = server.admin().await;
    let create = |body: Value| server.ask("POST", "/v3/projects", &admin, Some(json!({ "project": body })));
    let created = create(json!({"name": "shop", "domain_id": "default", "description": "web"})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let project = &created.body["project"];
    let id = project["id"].as_str().unwrap();
    assert_eq!((id.len(), &project["enabled"], &project["is_domain"]), (32, &json!(true), &json!(false)));
    let path = format!("/v3/projects/{id}");

    for (body, expected) in [
        (json!({"name": "shop"}), StatusCode::CONFLICT),
        (json!({"name": "demo"}), StatusCode::CONFLICT),
        (json!({"name": "shop", "domain_id": "other"}), StatusCode::CREATED),
        (json!({"name": "x", "domain_id": "nowhere"}), StatusCode::NOT_FOUND),
        (json!({"name": ""}), StatusCode::BAD_REQUEST),
        (json!({"name": "x".repeat(65)}), StatusCode::BAD_REQUEST),
        (json!({"name": 7}), StatusCode::BAD_REQUEST),
        (json!({"name": "a\0b"}), StatusCode::BAD_REQUEST),
        (json!({"name": "x", "description": "\0"}), StatusCode::BAD_REQUEST),
        (json!({"name": "x", "tags": ["a\0"]}), StatusCode::BAD_REQUEST),
        (json!({}), StatusCode::BAD_REQUEST),
        (json!({"name": "x", "is_domain": true}), StatusCode::BAD_REQUEST),
        (json!({"name": "x", "parent_id": DEMO}), StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(create(body.clone()).await.status, expected, "{body}");
    }

    let everywhere = server.token("everywhere", "wide secret", "shop").await;
    let shown = server.get("/v3/projects?name=shop&domain_id=default", &admin).await;
    assert_eq!(shown.body["projects"], json!([project]));
    let update = json!({"project": {"enabled": false, "description": "closed"}});
    let updated = server.ask("PATCH", &path, &admin, Some(update)).await;
    assert_eq!((updated.status, &updated.body["project"]["description"]), (StatusCode::OK, &json!("closed")));
    let again = server.get("/v3/auth/projects", &everywhere).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED, "a closed project ends its tokens");
    let closed = server.get("/v3/projects?enabled=false", &admin).await;
    assert_eq!(closed.names("projects"), ["shop"]);

    assert_eq!(server.ask("DELETE", &path, &admin, None).await.status, StatusCode::NO_CONTENT);
    assert_eq!(server.get(&path, &admin).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.ask("DELETE", &path, &admin, None).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_of_the_configuration_stay() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let admin = server.admin().await;
    let path = format!("/v3/projects/{DEMO}");
    for (method, body) in [("DELETE", None), ("PATCH", Some(json!({"project": {"name": "x"}})))] {
        let answer = server.ask(method, &path, &admin, body).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        let message = answer.body["error"]["message"].as_str().unwrap();
        assert!(message.contains("identity.local.projects"), "{message}");
    }
    assert_eq!(server.get(&path, &admin).await.body["project"]["name"], "demo");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_and_by_whom() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let (admin, ann) = (server.admin().await, server.ann().await);
    let user = server.get("/v3/users?name=ann", &admin).await.body["users"][0]["id"].clone();
    let user = user.as_str().unwrap();
    let role = server.get("/v3/roles?name=member", &admin).await.body["roles"][0]["id"].clone();
    let role = role.as_str().unwrap();
    for (path, by_admin, by_ann) in [
        ("/v3/projects".to_owned(), 200, 403),
        (format!("/v3/projects/{DEMO}"), 200, 200),
        ("/v3/projects/nowhere".to_owned(), 404, 403),
        (format!("/v3/users/{user}"), 200, 200),
        (format!("/v3/users/{user}/projects"), 200, 200),
        ("/v3/users/nobody".to_owned(), 404, 403),
        ("/v3/users".to_owned(), 200, 403),
        ("/v3/domains".to_owned(), 200, 403),
        ("/v3/domains/default".to_owned(), 200, 200),
        ("/v3/domains/other".to_owned(), 200, 403),
        ("/v3/domains/nowhere".to_owned(), 404, 403),
        ("/v3/roles".to_owned(), 200, 403),
        (format!("/v3/roles/{role}"), 200, 403),
        ("/v3/role_assignments".to_owned(), 200, 403),
        (format!("/v3/role_assignments?user.id={user}"), 200, 200),
        ("/v3/services".to_owned(), 200, 403),
        ("/v3/endpoints".to_owned(), 200, 403),
        ("/v3/regions".to_owned(), 200, 200),
        ("/v3/regions/RegionOne".to_owned(), 200, 200),
        ("/v3/auth/catalog".to_owned(), 200, 200),
        ("/v3/auth/projects".to_owned(), 200, 200),
        ("/v3/nothing".to_owned(), 404, 404),
    ] {
        assert_eq!(server.get(&path, &admin).await.status.as_u16(), by_admin, "{path}");
        assert_eq!(server.get(&path, &ann).await.status.as_u16(), by_ann, "{path}");
        assert_eq!(server.get(&path, "").await.status.as_u16(), 401, "{path}");
    }
    assert_eq!(server.get("/v3/domains", &admin).await.names("domains"), ["Default", "Other"]);
    assert_eq!(
        server.get("/v3/roles", &admin).await.names("roles"),
        ["admin", "manager", "member", "reader", "service"]
    );
    let path = format!("/v3/role_assignments?user.id={user}&effective&include_names=true");
    let assignments = server.get(&path, &admin).await.body["role_assignments"].clone();
    let roles: Vec<&str> =
        assignments.as_array().unwrap().iter().map(|one| one["role"]["name"].as_str().unwrap()).collect();
    assert_eq!(roles, ["member", "reader"]);
    let endpoints = server.get("/v3/endpoints?interface=public", &admin).await;
    assert_eq!(endpoints.body["endpoints"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_need_no_token() {
    let (_directory, ovn) = northbound();
    let server = Server::start(&ovn).await;
    let all = server.get("/", "").await;
    assert_eq!(all.status, StatusCode::MULTIPLE_CHOICES);
    let version = &all.body["versions"]["values"][0];
    assert_eq!(version["links"][0]["href"], "http://cloud.example:35357/v3/");
    for path in ["/v3", "/v3/"] {
        assert_eq!(server.get(path, "").await.body["version"], *version);
    }
    let below = server.get("/identity/v3", "").await;
    assert_eq!(below.body["version"]["links"][0]["href"], "http://cloud.example:35357/identity/v3/");
}
