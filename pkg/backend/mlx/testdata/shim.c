// What is not the shim that a program wants.
#include <stddef.h>
#include <string.h>

#include "sbmlx.h"

#ifndef NO_TABLE
static sbmlx_engine *open(sbmlx_message *m) {
	strcpy(m->text, "self-test failed: this one always does");
	return NULL;
}

const sbmlx_api *sbmlx_get_api(void) {
	static const sbmlx_api api = {.abi = ABI, .open = open};
	return &api;
}
#endif
