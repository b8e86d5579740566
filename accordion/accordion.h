// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// All that a program which trains with Accordion includes.

#include "accordion/checkpoint/checkpoint_saver.h"
#include "accordion/checkpoint/full_state_dict.h"
#include "accordion/checkpoint/load_checkpoint.h"
#include "accordion/checkpoint/save_checkpoint.h"
#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/describe.h"
#include "accordion/fsdp/full_parameters.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/nonfinite_output.h"
#include "accordion/fsdp/options.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/fsdp/step_trace_json.h"
#include "accordion/module/materialize.h"
#include "accordion/module/meta_init.h"
#include "accordion/module/unit.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/optimizer_state.h"
#include "accordion/optim/optimizer_state_traits.h"
#include "accordion/optim/parameters.h"
#include "accordion/optim/shard_optimizer.h"
#include "accordion/optim/whole_update.h"
