/* SPDX-License-Identifier: Apache-2.0
 *
 * Included before everything else in the stand-in's libcuda: these functions get another name, and cuda_reported.cpp
 * gives theirs to functions that tell CUPTI's stand-in before and after.
 */
#pragma once

#define cuCtxSynchronize plain_cuCtxSynchronize
#define cuStreamSynchronize plain_cuStreamSynchronize
#define cuStreamQuery plain_cuStreamQuery
#define cuStreamCreate plain_cuStreamCreate
#define cuStreamCreateWithPriority plain_cuStreamCreateWithPriority
#define cuStreamDestroy_v2 plain_cuStreamDestroy_v2
#define cuEventSynchronize plain_cuEventSynchronize
#define cuEventQuery plain_cuEventQuery
#define cuEventRecord plain_cuEventRecord
#define cuEventRecordWithFlags plain_cuEventRecordWithFlags
#define cuEventDestroy_v2 plain_cuEventDestroy_v2
