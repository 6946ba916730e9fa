//! Filters, pages, searches and the selection of attributes, over HTTP.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Directory, at};

impl Directory {
    async fn find(&self, query: &[(&str, &str)]) -> Value {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let pairs: Vec<_> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.call(Method::GET, &format!("/Users?{}", pairs.join("&")), &Value::Null).await.ok()
    }

    /// Returns the names of the users that a filter finds, after checking that a search finds the same.
    async fn names(&self, filter: &str) -> Vec<String> {
        let page = self.find(&[("filter", filter)]).await;
        let body = json!({ "schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"], "filter": filter });
        for path in ["/Users/.search", "/.search"] {
            assert_eq!(self.call(Method::POST, path, &body).await.ok(), page, "{path} {filter}");
        }
        assert_eq!(page["totalResults"], page["Resources"].as_array().unwrap().len(), "{filter}");
        let mut names = names(&page);
        names.sort();
        names
    }
}

fn names(page: &Value) -> Vec<String> {
    let name = |user: &Value| user["userName"].as_str().unwrap().to_owned();
    page["Resources"].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn filters_find_users_by_each_attribute_alone_and_combined() {
    let directory = Directory::new().await;
    let ada = json!({
        "userName": "ada", "externalId": "1", "displayName": "Ada L", "name": { "givenName": "Ada", "familyName": "L" },
        "emails": [{ "value": "ada@example.com", "type": "work" }],
    });
    let ada = directory.create(&ada).await;
    directory.create(&json!({ "userName": "bob", "externalId": "2", "active": false })).await;
    let id = ada["id"].as_str().unwrap();
    let created = ada["meta"]["created"].as_str().unwrap();
    for (filter, expected) in [
        ("userName eq \"ADA\"", vec!["ada"]),
        ("userName sw \"B\"", vec!["bob"]),
        ("userName pr", vec!["ada", "bob"]),
        ("userName eq \"ada\" and active eq true", vec!["ada"]),
        ("active eq false and userName eq \"ada\"", vec![]),
        ("externalId eq \"2\"", vec!["bob"]),
        ("externalId eq \"2\" or userName eq \"ada\"", vec!["ada", "bob"]),
        ("not (externalId eq \"2\")", vec!["ada"]),
        ("active eq \"False\"", vec!["bob"]),
        (&format!("id eq \"{id}\""), vec!["ada"]),
        (&format!("id eq \"{id}\" and active eq false"), vec![]),
        ("id eq \"0123456789abcdef\"", vec![]),
        ("id eq \"../x\"", vec![]),
        ("emails.value eq \"ADA@example.com\"", vec!["ada"]),
        ("emails[type eq \"work\"].value eq \"ada@example.com\"", vec!["ada"]),
        ("emails[type eq \"home\"].value eq \"ada@example.com\"", vec![]),
        ("displayName co \"a l\" and name.familyName eq \"l\"", vec!["ada"]),
        (&format!("meta.lastModified ge \"{created}\""), vec!["ada", "bob"]),
        ("meta.created lt \"2000-01-01T00:00:00Z\"", vec![]),
        (&format!("userName eq \"{}\"", "x".repeat(5_000)), vec![]),
    ] {
        assert_eq!(directory.names(filter).await, expected, "{filter}");
    }
    for wrong in ["userName", "userName eq ada", "title eq \"x\"", "active gt true", "userName regex \"a\""] {
        let filter = wrong.replace(' ', "%20").replace('"', "%22");
        let refused = directory.call(Method::GET, &format!("/Users?filter={filter}"), &Value::Null).await;
        assert_eq!(
            (refused.status, &refused.json()["scimType"]),
            (StatusCode::BAD_REQUEST, &json!("invalidFilter")),
            "{wrong}"
        );
        let searched = directory.call(Method::POST, "/Users/.search", &json!({ "filter": wrong })).await;
        assert_eq!(searched.json(), refused.json());
    }
}

#[tokio::test]
async fn the_pages_of_a_filter_are_all_its_users_in_order() {
    let directory = Directory::new().await;
    // More than one read of a scan.
    for n in 0..510 {
        directory.create(&json!({ "userName": format!("user{n}"), "active": n % 3 != 0 })).await;
    }
    let mut found = Vec::new();
    for start in (1..).step_by(60) {
        let page =
            directory.find(&[("filter", "active eq false"), ("startIndex", &start.to_string()), ("count", "60")]).await;
        assert_eq!((&page["totalResults"], &page["startIndex"]), (&json!(170), &json!(start)));
        let names = names(&page);
        assert_eq!(page["itemsPerPage"], names.len());
        if names.is_empty() {
            break;
        }
        found.extend(names);
    }
    let all = directory.find(&[("filter", "active eq false"), ("count", "200")]).await;
    assert_eq!(found, names(&all));
    let none = directory.find(&[("filter", "active eq false"), ("count", "0")]).await;
    assert_eq!((&none["totalResults"], names(&none).len()), (&json!(170), 0));
}

#[tokio::test]
async fn every_reply_with_users_has_the_selected_attributes() {
    let directory = Directory::new().await;
    let body = json!({ "userName": "ada", "name": { "givenName": "Ada", "familyName": "L" }, "title": "x" });
    let created = directory.call(Method::POST, "/Users?attributes=userName,name.familyName,title", &body).await;
    assert!(created.headers.contains_key("location"));
    let user = created.json();
    let selected = json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "id": user["id"], "userName": "ada",
        "name": { "familyName": "L" },
    });
    assert_eq!(user, selected);
    let one = at(&user);
    let only = "attributes=userName,name.familyName";
    let without = "excludedAttributes=id,meta,active,name.givenName";
    let patch = json!({ "Operations": [{ "op": "replace", "path": "displayName", "value": null }] });
    for query in [only, without] {
        for (method, path, body) in
            [(Method::GET, &one, &Value::Null), (Method::PUT, &one, &body), (Method::PATCH, &one, &patch)]
        {
            let shown = directory.call(method.clone(), &format!("{path}?{query}"), body).await.ok();
            assert_eq!(shown, selected, "{method} {query}");
        }
        let listed = directory.call(Method::GET, &format!("/Users?{query}"), &Value::Null).await.ok();
        assert_eq!(listed["Resources"], json!([selected]), "{query}");
    }
    let body = json!({ "excludedAttributes": ["meta", "active", "name.givenName"] });
    assert_eq!(directory.call(Method::POST, "/.search", &body).await.ok()["Resources"], json!([selected]));
    let before = directory.get(&user).await;
    let both = directory.call(Method::PUT, &format!("{one}?{only}&{without}"), &json!({ "userName": "b" })).await;
    assert_eq!((both.status, &both.json()["scimType"]), (StatusCode::BAD_REQUEST, &json!("invalidValue")));
    assert_eq!(directory.get(&user).await, before);
}

#[tokio::test]
async fn discovery_announces_what_the_server_does_and_has_no_filters() {
    let directory = Directory::new().await;
    for path in ["/Schemas", "/ResourceTypes", "/ServiceProviderConfig", "/ResourceTypes/User"] {
        let shown =
            directory.call(Method::GET, &format!("{path}?attributes=id&sortBy=id&startIndex=7"), &Value::Null).await;
        assert_eq!(shown.ok(), directory.call(Method::GET, path, &Value::Null).await.ok());
        let refused = directory.call(Method::GET, &format!("{path}?filter=id%20pr"), &Value::Null).await;
        assert_eq!((refused.status, &refused.json()["status"]), (StatusCode::FORBIDDEN, &json!("403")), "{path}");
    }
    let schemas = directory.call(Method::GET, "/Schemas", &Value::Null).await.ok();
    let attributes = schemas["Resources"][0]["attributes"].as_array().unwrap().clone();
    let announced = |name: &str| attributes.iter().find(|one| one["name"] == name).unwrap().clone();
    for unique in ["userName", "externalId"] {
        assert_eq!(announced(unique)["uniqueness"], "server");
        directory.create(&json!({ "userName": "ada", unique: "x" })).await;
        let twin = directory.call(Method::POST, "/Users", &json!({ "userName": "bob", unique: "x" })).await;
        assert_eq!((twin.status, &twin.json()["scimType"]), (StatusCode::CONFLICT, &json!("uniqueness")), "{unique}");
        let found = directory.find(&[("filter", "userName pr")]).await;
        directory.call(Method::DELETE, &at(&found["Resources"][0]), &Value::Null).await;
    }
    // The type and the primary flag of an address follow from the address.
    let sent = json!({ "userName": "ada", "emails": [{ "value": "a@example.com", "type": "home", "primary": false }] });
    let kept = directory.create(&sent).await;
    for part in announced("emails")["subAttributes"].as_array().unwrap() {
        let name = part["name"].as_str().unwrap();
        let is_kept = kept["emails"][0][name] == sent["emails"][0][name];
        assert_eq!(part["mutability"], if is_kept { "readWrite" } else { "readOnly" }, "{name}");
        if let Some(canonical) = part["canonicalValues"].as_array() {
            assert!(canonical.contains(&kept["emails"][0][name]), "{name}");
        }
    }
}
