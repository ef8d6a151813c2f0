/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the stand-in's libcuda that tests call, as cuda.h declares them.
 */
#pragma once

#include "tests/fakegpu/cuda_api.h"
#include "tests/fakegpu/fakegpu.h"

#ifdef __cplusplus
extern "C" {
#endif
CUresult cuInit(unsigned flags);
CUresult cuGetErrorName(CUresult error, const char** name);
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t,
                             CUdriverProcAddressQueryResult* status);
CUresult cuDeviceGetCount(int* number);
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal);
CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active);
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice ordinal);
CUresult cuCtxDestroy_v2(CUcontext handle);
CUresult cuCtxPushCurrent_v2(CUcontext handle);
CUresult cuCtxPopCurrent_v2(CUcontext* handle);
CUresult cuCtxSetCurrent(CUcontext handle);
CUresult cuCtxGetCurrent(CUcontext* handle);
CUresult cuCtxSynchronize();
CUresult cuMemAlloc_v2(CUdeviceptr* to, size_t bytes);
CUresult cuMemAllocManaged(CUdeviceptr* to, size_t bytes, unsigned);
CUresult cuMemHostAlloc(void** to, size_t bytes, unsigned flags);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemFreeHost(void* address);
CUresult cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags);
CUresult cuMemHostUnregister(void* address);
CUresult cuMemAllocAsync(CUdeviceptr* to, size_t bytes, CUstream handle);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle);
CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr address);
CUresult cuCtxGetFlags(unsigned* flags);
CUresult cuCtxSetFlags(unsigned flags);
CUresult cuPointerGetAttribute(void* to, CUpointer_attribute which, CUdeviceptr address);
CUresult cuPointerGetAttributes(unsigned number, CUpointer_attribute* which, void** to, CUdeviceptr address);
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr memory);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* to, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr memory);
CUresult cuMemAddressReserve(CUdeviceptr* to, size_t bytes, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes);
CUresult cuMemCreate(CUmemGenericAllocationHandle* to, size_t bytes, const CUmemAllocationProp* props,
                     unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes);
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* what, CUstream stream);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t number);
CUresult cuStreamCreate(CUstream* to, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream handle);
CUresult cuStreamQuery(CUstream handle);
CUresult cuStreamSynchronize(CUstream handle);
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode);
CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph);
CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned);
CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data);
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr from, cuuint32_t value, unsigned flags);
CUresult cuEventCreate(CUevent* to, unsigned flags);
CUresult cuEventDestroy_v2(CUevent handle);
CUresult cuEventRecord(CUevent handle, CUstream stream_handle);
CUresult cuEventQuery(CUevent handle);
CUresult cuEventSynchronize(CUevent handle);
CUresult cuEventElapsedTime(float* milliseconds, CUevent from_handle, CUevent to_handle);
CUresult cuModuleLoadData(CUmodule* module, const void* image);
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name);
CUresult cuLaunchKernel(CUfunction handle, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                        unsigned threads_z, unsigned, CUstream stream_handle, void** arguments, void** extra);

#ifdef __cplusplus
}
#endif
