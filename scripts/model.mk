# Builds what running a model under memory caps takes: the machine's
# measurements, the model's table, a plan for every budget, and one store that
# holds the records of all plans. Only what changed is made again.
#
#     MODEL   = path/to/model            # folder or GGUF file
#     OUT     = build/my-model           # where everything goes
#     BUDGETS = 4G 6G                    # caps, as --max-ram takes them
#     include path/to/scripts/model.mk   # then: make model
#
# or without a makefile of your own:
#
#     make -f scripts/model.mk MODEL=... OUT=... BUDGETS='4G 6G' model
#
# Optional: MEASURE_FLAGS, PLAN_FLAGS, PACK_FLAGS, VERIFY_FLAGS; MACHINE, the
# machine document to use instead of measuring. Works with GNU make 3.81;
# `make -j` is safe: every tool writes its result whole or not at all, and
# measurements of one machine wait for each other.

MACHINE       ?= $(OUT)/machine.json
MEASURE_FLAGS ?=
PLAN_FLAGS    ?=
PACK_FLAGS    ?=
VERIFY_FLAGS  ?=

model_files := $(if $(wildcard $(MODEL)/.),$(wildcard $(MODEL)/*.safetensors $(MODEL)/*.json),$(MODEL))
model_plans := $(foreach b,$(BUDGETS),$(OUT)/plan-$(b).json)

.PHONY: model verify-model
model: $(OUT)/model.sb/manifest.json

$(OUT):
	mkdir -p $(OUT)

$(OUT)/machine.json: | $(OUT)
	sb-calibrate machine --dir $(OUT) -o $@

$(OUT)/table.json: $(model_files) | $(OUT)
	sb-calibrate measure --model $(MODEL) --stats $(OUT)/stats.safetensors $(MEASURE_FLAGS) -o $@

define model_plan
$(OUT)/plan-$(1).json: $(OUT)/table.json $(MACHINE)
	sb-plan $(OUT)/table.json --machine $(MACHINE) --max-ram $(1) $(PLAN_FLAGS) -o $$@
endef
$(foreach b,$(BUDGETS),$(eval $(call model_plan,$(b))))

# A finished store never changes: a new one takes its place.
$(OUT)/model.sb/manifest.json: $(model_plans)
	rm -rf $(OUT)/model.sb
	sb-pack --model $(MODEL) --stats $(OUT)/stats.safetensors $(PACK_FLAGS) -o $(OUT)/model.sb $(model_plans) >$(OUT)/packed.json

verify-model: $(OUT)/verify.json

# Exit code 1 says that the measured quality is outside the predicted band:
# the result is worth keeping all the same.
$(OUT)/verify.json: $(OUT)/model.sb/manifest.json
	sb-calibrate verify --model $(MODEL) --stats $(OUT)/stats.safetensors $(VERIFY_FLAGS) -o $@ $(OUT)/model.sb || test $$? -eq 1
