"""Creates a group and reads, lists, updates and deletes it, with the client of openapi-generator."""

import os

import openapi_client

configuration = openapi_client.Configuration(host=os.environ["API"], access_token=os.environ["TOKEN"])
groups = openapi_client.GroupsServiceApi(openapi_client.ApiClient(configuration))

created = groups.create_group(os.environ["ORG"], group_create=openapi_client.GroupCreate(name="generated"))
assert groups.get_group(created.uid).name == "generated"
assert [group.uid for group in groups.list_groups(name="generated").groups] == [created.uid]
changed = groups.update_group(created.uid, group_update=openapi_client.GroupUpdate(description="changed"))
assert changed.description == "changed"
groups.delete_group(created.uid)
try:
    groups.get_group(created.uid)
    raise SystemExit("the group was not deleted")
except openapi_client.exceptions.NotFoundException as error:
    assert error.data.details, error
