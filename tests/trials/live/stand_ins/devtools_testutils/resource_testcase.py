"""How a test is given its resource group."""

RESOURCE_GROUP_PARAM = "resource_group"
