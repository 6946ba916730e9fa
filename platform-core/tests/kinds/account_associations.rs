//! Account associations: uniqueness, validation and checks (`docs/api.md`, Account associations).

use platform_engine::error::Code;
use serde_json::{Value, json};

use crate::common::{World, code, text, uid_of, violated_fields};

fn check(world: &World, uid: &str, provider: &str) -> Value {
    let request = json!({ "uid": uid, "providerType": format!("ACCOUNT_PROVIDER_TYPE_{provider}") });
    world.run(Some(&world.operator), "CheckAccountAssociation", request).unwrap()
}

#[test]
fn a_group_has_at_most_one_association_with_its_uid_that_is_deleted_with_it() {
    let world = World::new();
    let (group, sibling) = (world.group(&world.org), world.group(&world.org));
    let create = |group: &str| {
        let body = json!({ "name": "a", "amazon": { "account": "123456789012" } });
        world.create(&world.operator, "AccountAssociation", group, body)
    };
    for group in [&world.org, &group, &sibling] {
        assert_eq!(text(&create(group).unwrap(), "uid"), &**group);
        assert_eq!(code(create(group)), Code::AlreadyExists);
    }
    let listed = |filter| world.list(&world.operator, "AccountAssociation", &[(filter, &*world.org)]).unwrap().total;
    assert_eq!((listed("uidp.descendants_of"), listed("uidp.children_of")), (3, 2));
    let by_group = world.list(&world.operator, "AccountAssociation", &[("order_by", "group desc")]).unwrap().uids();
    let mut by_uid = world.list(&world.operator, "AccountAssociation", &[]).unwrap().uids();
    by_uid.reverse();
    assert_eq!(by_group, by_uid);
    world.delete(&world.operator, "Group", &group).unwrap();
    assert_eq!(code(world.get(&world.operator, "AccountAssociation", &group)), Code::NotFound);
    world.get(&world.operator, "AccountAssociation", &sibling).unwrap();
    world.delete(&world.operator, "AccountAssociation", &sibling).unwrap();
    create(&sibling).unwrap();
    let nowhere = format!("{}/0000000000000000", world.org);
    assert_eq!(code(create(&nowhere)), Code::NotFound);
}

#[test]
fn each_provider_block_is_validated() {
    let world = World::new();
    let identity = |group: &str, form: Value| {
        let mut body = json!({ "name": "a" });
        body[form[0].as_str().unwrap()] = form[1].clone();
        uid_of(&world.create(&world.operator, "Identity", group, body).unwrap())
    };
    let service = json!(["servicePrincipal", "SERVICE_PRINCIPAL_INGESTER"]);
    let right = identity(&world.org, service.clone());
    let other = identity(&world.org, json!(["servicePrincipal", "SERVICE_PRINCIPAL_COSIGNED"]));
    let claims = identity(&world.org, json!(["claimMatch", { "issuer": "i", "subject": "s" }]));
    let below = identity(&world.group(&world.org), service.clone());
    let foreign = identity(&world.organization(), service);
    let bound = |uid: &str| json!({ "chainguard": { "serviceBindings": { "INGESTER": uid } } });
    let missing = format!("{}/0000000000000000", world.org);
    let installed = |app: &str, id: Value| json!({ "github": { "appInstallations": { app: { "installations": [{ "installationId": id }] } } } });
    let of_service = "chainguard.serviceBindings.INGESTER";
    for (block, field) in [
        (json!({ "amazon": {} }), "amazon.account"),
        (json!({ "amazon": { "account": "12345678901" } }), "amazon.account"),
        (json!({ "google": { "projectId": "a" } }), "google.projectNumber"),
        (json!({ "azure": { "tenantId": "a" } }), "azure.clientIds"),
        (json!({ "chainguard": {} }), "chainguard.serviceBindings"),
        (json!({ "chainguard": { "serviceBindings": { "BAKER": right } } }), "chainguard.serviceBindings"),
        (bound("x"), "chainguard.serviceBindings"),
        (bound(&other), of_service),
        (bound(&claims), of_service),
        (bound(&below), of_service),
        (bound(&foreign), of_service),
        (bound(&missing), of_service),
        (installed("x", json!("1")), "github.appInstallations"),
        (installed("01", json!("1")), "github.appInstallations"),
        (installed("1", json!("x")), "github.appInstallations.1.installations[0].installationId"),
    ] {
        let mut body = block.clone();
        body["name"] = "a".into();
        let rejected = world.create(&world.operator, "AccountAssociation", &world.org, body);
        assert_eq!(violated_fields(rejected), [field], "{block}");
    }
    let mut body = installed("9007199254740993", json!(7));
    body["name"] = "a".into();
    body["chainguard"] = bound(&right)["chainguard"].clone();
    let created = world.create(&world.operator, "AccountAssociation", &world.org, body).unwrap();
    let installations = &created["github"]["appInstallations"]["9007199254740993"]["installations"];
    assert_eq!(installations, &json!([{ "installationId": "7" }]));
    assert_eq!(created["chainguard"]["serviceBindings"]["INGESTER"], json!(right));
    // An identity that was deleted later does not prevent updates of other fields.
    world.delete(&world.operator, "Identity", &right).unwrap();
    let renamed = json!({ "name": "b" });
    world.update(&world.operator, "AccountAssociation", &world.org, renamed, None).unwrap();
    let bare =
        world.update(&world.operator, "AccountAssociation", &world.org, json!({ "name": "c" }), Some("*")).unwrap();
    assert!(bare.get("github").is_none() && bare.get("chainguard").is_none());
}

#[test]
fn a_check_reports_not_configured_or_not_checked_and_never_ready() {
    let world = World::new();
    let body = json!({ "name": "a", "google": { "projectId": "a", "projectNumber": "1" } });
    world.create(&world.operator, "AccountAssociation", &world.org, body).unwrap();
    let reasons = ["GOOGLE", "AMAZON", "AZURE"].map(|provider| {
        let checked = check(&world, &world.org, provider);
        assert_eq!(text(&checked, "status"), "CHECK_STATUS_NOT_READY");
        text(&checked, "reason").to_owned()
    });
    assert_eq!(reasons, ["not checked", "not configured", "not configured"]);
    let request = json!({ "uid": world.org });
    assert_eq!(violated_fields(world.run(Some(&world.operator), "CheckAccountAssociation", request)), ["providerType"]);
    let request = json!({ "uid": world.group(&world.org), "providerType": 2 });
    assert_eq!(code(world.run(Some(&world.operator), "CheckAccountAssociation", request)), Code::NotFound);
}
