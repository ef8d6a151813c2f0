! SPDX-License-Identifier: Apache-2.0
!
! Module resil: what resil.h is to C. Compile this file with your program; nothing to link. The library is looked up
! once at run time; without libresil.so in LD_PRELOAD the calls do nothing. Names may have trailing blanks.
module resil
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: resil_step, resil_norm, resil_checksum, resil_count, resil_drain
  public :: resil_fingerprint, resil_protect, resil_unprotect, resil_run_twice, resil_mismatches
  public :: resil_spr_create, resil_spr_destroy, resil_spr_field, resil_spr_bit, resil_spr_select, resil_spr_begin
  public :: resil_spr_end, resil_spr_computed, resil_spr_rollback, resil_spr_keep, resil_spr_kept
  public :: resil_spr_copy, resil_spr_replicas, resil_spr_own, resil_spr_before
  public :: resil_spr_double, resil_spr_float, resil_spr_id, resil_spr_may_change
  public :: resil_policy_default, resil_policy_abort, resil_policy_retry, resil_policy_continue, resil_local

  !> What resil_run_twice does about a difference; resil_local is added where the step does not communicate.
  integer, parameter :: resil_policy_default = 0, resil_policy_abort = 1, resil_policy_retry = 2, &
    resil_policy_continue = 3, resil_local = 16

  !> Flags of resil_spr_field.
  integer, parameter :: resil_spr_double = 1, resil_spr_float = 2, resil_spr_id = 4, resil_spr_may_change = 8

  !> Whose particles resil_spr_kept gives.
  integer, parameter :: resil_spr_own = 0, resil_spr_before = 1

  !> What a kernel for replicas is given, see resil.h: offsets and neighbours count from 0 on; c_f_pointer makes arrays
  !> of them. field: an array of c_ptr, one for each field, in the order of their numbers.
  type, bind(c) :: resil_spr_replicas
    integer(c_int) :: rank, count, particles, fields
    type(c_ptr) :: offset, neighbour, id, field
  end type

  abstract interface
    subroutine step_function(name) bind(c)
      import :: c_char
      character(kind=c_char), intent(in) :: name(*)
    end subroutine
    subroutine norm_function(name, value) bind(c)
      import :: c_char, c_double
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: value
    end subroutine
    subroutine integer_function(name, value) bind(c)
      import :: c_char, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: value
    end subroutine
    function drain_function() bind(c) result(unverified)
      import :: c_int
      integer(c_int) :: unverified
    end function
    function fingerprint_function(name, data, bytes) bind(c) result(value)
      import :: c_char, c_ptr, c_size_t, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      integer(c_int64_t) :: value
    end function
    function protect_function(name, data, bytes) bind(c) result(problem)
      import :: c_char, c_ptr, c_size_t, c_int
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      integer(c_int) :: problem
    end function
    function unprotect_function(name) bind(c) result(problem)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int) :: problem
    end function
    subroutine step_body(argument) bind(c)
      import :: c_ptr
      type(c_ptr), value :: argument
    end subroutine
    function run_twice_function(step, run, argument, policy) bind(c) result(different)
      import :: c_char, c_funptr, c_ptr, c_int
      character(kind=c_char), intent(in) :: step(*)
      type(c_funptr), value :: run
      type(c_ptr), value :: argument
      integer(c_int), value :: policy
      integer(c_int) :: different
    end function
    function spr_create_function(name, members, count) bind(c) result(set)
      import :: c_char, c_int, c_ptr
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: members
      integer(c_int), value :: count
      integer(c_int) :: set
    end function
    subroutine spr_set_function(set) bind(c)
      import :: c_int
      integer(c_int), value :: set
    end subroutine
    function spr_field_function(set, name, data, bytes, stride, flags) bind(c) result(number)
      import :: c_char, c_int, c_ptr, c_size_t
      integer(c_int), value :: set, flags
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes, stride
      integer(c_int) :: number
    end function
    function spr_select_function(set, local, total, offset, count, neighbour, base, owner) bind(c) result(replicas)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int), value :: set, base
      integer(c_int64_t), value :: local, total
      type(c_ptr), value :: offset, count, neighbour, owner
      integer(c_int) :: replicas
    end function
    subroutine spr_begin_function(set, step, local, total, fields) bind(c)
      import :: c_int, c_int64_t
      integer(c_int), value :: set
      integer(c_int64_t), value :: step, local, total, fields
    end subroutine
    function spr_end_function(set, results, kernel, argument, policy) bind(c) result(different)
      import :: c_int, c_int64_t, c_funptr, c_ptr
      integer(c_int), value :: set, policy
      integer(c_int64_t), value :: results
      type(c_funptr), value :: kernel
      type(c_ptr), value :: argument
      integer(c_int64_t) :: different
    end function
    subroutine spr_computed_function(set, results, first, count) bind(c)
      import :: c_int, c_int64_t
      integer(c_int), value :: set
      integer(c_int64_t), value :: results, first, count
    end subroutine
    subroutine spr_rollback_function(set, hook, argument) bind(c)
      import :: c_int, c_funptr, c_ptr
      integer(c_int), value :: set
      type(c_funptr), value :: hook
      type(c_ptr), value :: argument
    end subroutine
    function spr_keep_function(set, step, local, fields) bind(c) result(missing)
      import :: c_int, c_int64_t
      integer(c_int), value :: set
      integer(c_int64_t), value :: step, local, fields
      integer(c_int) :: missing
    end function
    function spr_kept_function(set, step, of, copy) bind(c) result(kept)
      import :: c_int, c_int64_t, resil_spr_replicas
      integer(c_int), value :: set, of
      integer(c_int64_t), value :: step
      type(resil_spr_replicas), intent(out) :: copy
      integer(c_int64_t) :: kept
    end function
    function spr_copy_function(set, copy) bind(c) result(missing)
      import :: c_int, resil_spr_replicas
      integer(c_int), value :: set
      type(resil_spr_replicas), intent(out) :: copy
      integer(c_int) :: missing
    end function
    function spr_kernel(argument, replicas) bind(c) result(failed)
      import :: c_int, c_ptr, resil_spr_replicas
      type(c_ptr), value :: argument
      type(resil_spr_replicas), intent(in) :: replicas
      integer(c_int) :: failed
    end function
    function spr_hook(argument, step) bind(c) result(failed)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: argument
      integer(c_int64_t), value :: step
      integer(c_int) :: failed
    end function
    function mismatches_function() bind(c) result(count)
      import :: c_int64_t
      integer(c_int64_t) :: count
    end function
  end interface

  interface
    function dlsym(handle, symbol) bind(c, name="dlsym") result(address)
      import :: c_ptr, c_funptr, c_char
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: symbol(*)
      type(c_funptr) :: address
    end function
  end interface

  logical, save :: looked_up = .false.
  procedure(step_function), pointer, save :: step_pointer => null()
  procedure(norm_function), pointer, save :: norm_pointer => null()
  procedure(integer_function), pointer, save :: checksum_pointer => null(), count_pointer => null()
  procedure(drain_function), pointer, save :: drain_pointer => null()
  procedure(fingerprint_function), pointer, save :: fingerprint_pointer => null()
  procedure(protect_function), pointer, save :: protect_pointer => null()
  procedure(unprotect_function), pointer, save :: unprotect_pointer => null()
  procedure(run_twice_function), pointer, save :: run_twice_pointer => null()
  procedure(mismatches_function), pointer, save :: mismatches_pointer => null()
  procedure(spr_create_function), pointer, save :: spr_create_pointer => null()
  procedure(spr_set_function), pointer, save :: spr_destroy_pointer => null()
  procedure(spr_field_function), pointer, save :: spr_field_pointer => null()
  procedure(spr_select_function), pointer, save :: spr_select_pointer => null()
  procedure(spr_begin_function), pointer, save :: spr_begin_pointer => null()
  procedure(spr_end_function), pointer, save :: spr_end_pointer => null()
  procedure(spr_computed_function), pointer, save :: spr_computed_pointer => null()
  procedure(spr_rollback_function), pointer, save :: spr_rollback_pointer => null()
  procedure(spr_keep_function), pointer, save :: spr_keep_pointer => null()
  procedure(spr_kept_function), pointer, save :: spr_kept_pointer => null()
  procedure(spr_copy_function), pointer, save :: spr_copy_pointer => null()

contains

  subroutine look_up()
    type(c_funptr) :: address
    looked_up = .true.
    address = dlsym(c_null_ptr, "resil_step" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, step_pointer)
    address = dlsym(c_null_ptr, "resil_norm" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, norm_pointer)
    address = dlsym(c_null_ptr, "resil_checksum" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, checksum_pointer)
    address = dlsym(c_null_ptr, "resil_count" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, count_pointer)
    address = dlsym(c_null_ptr, "resil_drain" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, drain_pointer)
    address = dlsym(c_null_ptr, "resil_fingerprint" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, fingerprint_pointer)
    address = dlsym(c_null_ptr, "resil_protect" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, protect_pointer)
    address = dlsym(c_null_ptr, "resil_unprotect" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, unprotect_pointer)
    address = dlsym(c_null_ptr, "resil_run_twice" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, run_twice_pointer)
    address = dlsym(c_null_ptr, "resil_mismatches" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, mismatches_pointer)
    address = dlsym(c_null_ptr, "resil_spr_create" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_create_pointer)
    address = dlsym(c_null_ptr, "resil_spr_destroy" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_destroy_pointer)
    address = dlsym(c_null_ptr, "resil_spr_field" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_field_pointer)
    address = dlsym(c_null_ptr, "resil_spr_select" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_select_pointer)
    address = dlsym(c_null_ptr, "resil_spr_begin" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_begin_pointer)
    address = dlsym(c_null_ptr, "resil_spr_end" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_end_pointer)
    address = dlsym(c_null_ptr, "resil_spr_computed" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_computed_pointer)
    address = dlsym(c_null_ptr, "resil_spr_rollback" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_rollback_pointer)
    address = dlsym(c_null_ptr, "resil_spr_keep" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_keep_pointer)
    address = dlsym(c_null_ptr, "resil_spr_kept" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_kept_pointer)
    address = dlsym(c_null_ptr, "resil_spr_copy" // c_null_char)
    if (c_associated(address)) call c_f_procpointer(address, spr_copy_pointer)
  end subroutine

  !> The program begins a step with this name; its step counter goes up by one.
  subroutine resil_step(name)
    character(len=*), intent(in) :: name
    if (.not. looked_up) call look_up()
    if (associated(step_pointer)) call step_pointer(trim(name) // c_null_char)
  end subroutine

  !> A norm (residual, energy) into the flight recorder, bit for bit.
  subroutine resil_norm(name, value)
    character(len=*), intent(in) :: name
    real(c_double), intent(in) :: value
    if (.not. looked_up) call look_up()
    if (associated(norm_pointer)) call norm_pointer(trim(name) // c_null_char, value)
  end subroutine

  !> A 64-bit checksum that the program computed itself.
  subroutine resil_checksum(name, value)
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: value
    if (.not. looked_up) call look_up()
    if (associated(checksum_pointer)) call checksum_pointer(trim(name) // c_null_char, value)
  end subroutine

  !> An iteration count.
  subroutine resil_count(name, value)
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: value
    if (.not. looked_up) call look_up()
    if (associated(count_pointer)) call count_pointer(trim(name) // c_null_char, value)
  end subroutine

  !> Everything sent and received so far is verified before this returns; how many messages stayed unverified.
  integer function resil_drain()
    resil_drain = 0
    if (.not. looked_up) call look_up()
    if (associated(drain_pointer)) resil_drain = int(drain_pointer())
  end function

  !> Fingerprint of `bytes` bytes at c_loc(array), logged under this name; 0 without resil.
  integer(c_int64_t) function resil_fingerprint(name, data, bytes)
    character(len=*), intent(in) :: name
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: bytes
    resil_fingerprint = 0
    if (.not. looked_up) call look_up()
    if (associated(fingerprint_pointer)) resil_fingerprint = fingerprint_pointer(trim(name) // c_null_char, data, bytes)
  end function

  !> Adds `bytes` bytes at c_loc(array) to the state that resil_run_twice saves, restores and compares. 0: done.
  integer function resil_protect(name, data, bytes)
    character(len=*), intent(in) :: name
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: bytes
    resil_protect = 0
    if (.not. looked_up) call look_up()
    if (associated(protect_pointer)) resil_protect = int(protect_pointer(trim(name) // c_null_char, data, bytes))
  end function

  !> Takes it out again, before it is deallocated. 1: there was none of that name.
  integer function resil_unprotect(name)
    character(len=*), intent(in) :: name
    resil_unprotect = 0
    if (.not. looked_up) call look_up()
    if (associated(unprotect_pointer)) resil_unprotect = int(unprotect_pointer(trim(name) // c_null_char))
  end function

  !> Runs `run` twice from the same protected state; on how many ranks the results differed. See resil.h.
  integer function resil_run_twice(step, run, argument, policy)
    character(len=*), intent(in) :: step
    procedure(step_body) :: run
    type(c_ptr), intent(in) :: argument
    integer, intent(in) :: policy
    resil_run_twice = 0
    if (.not. looked_up) call look_up()
    if (associated(run_twice_pointer)) then
      resil_run_twice = int(run_twice_pointer(trim(step) // c_null_char, c_funloc(run), argument, int(policy, c_int)))
    else
      call run(argument)
    end if
  end function

  !> Double runs so far whose results differed.
  integer(c_int64_t) function resil_mismatches()
    resil_mismatches = 0
    if (.not. looked_up) call look_up()
    if (associated(mismatches_pointer)) resil_mismatches = mismatches_pointer()
  end function

  !> A set of particles, some of which are computed once more on the next rank; see resil.h and docs/SPR.md. -1 without
  !> resil, and unless RESIL_SPR is set: then the others do nothing. `members`: world ranks; without it, all ranks.
  integer function resil_spr_create(name, members)
    character(len=*), intent(in) :: name
    integer(c_int), intent(in), target, optional :: members(:)
    resil_spr_create = -1
    if (.not. looked_up) call look_up()
    if (.not. associated(spr_create_pointer)) return
    if (present(members)) then
      resil_spr_create = int(spr_create_pointer(trim(name) // c_null_char, c_loc(members), int(size(members), c_int)))
    else
      resil_spr_create = int(spr_create_pointer(trim(name) // c_null_char, c_null_ptr, 0_c_int))
    end if
  end function

  subroutine resil_spr_destroy(set)
    integer, intent(in) :: set
    if (set >= 0 .and. associated(spr_destroy_pointer)) call spr_destroy_pointer(int(set, c_int))
  end subroutine

  !> Number of the field: `bytes` for each particle at c_loc(array), `stride` from one to the next. -1: not taken.
  integer function resil_spr_field(set, name, data, bytes, stride, flags)
    integer, intent(in) :: set, flags
    character(len=*), intent(in) :: name
    type(c_ptr), intent(in) :: data
    integer, intent(in) :: bytes, stride
    resil_spr_field = -1
    if (set >= 0 .and. associated(spr_field_pointer)) resil_spr_field = int(spr_field_pointer(int(set, c_int), &
      trim(name) // c_null_char, data, int(bytes, c_size_t), int(stride, c_size_t), int(flags, c_int)))
  end function

  !> The bit of a field; put together with ior.
  integer(c_int64_t) function resil_spr_bit(field)
    integer, intent(in) :: field
    resil_spr_bit = 0
    if (field >= 0) resil_spr_bit = ishft(1_c_int64_t, field)
  end function

  !> Selects. Neighbours of particle i, numbered from 1 on: neighbour(offset(i) + 1 : offset(i) + counts(i)).
  integer function resil_spr_select(set, local, total, offset, counts, neighbour, owner)
    integer, intent(in) :: set, local, total
    integer(c_int64_t), intent(in), target :: offset(*)
    integer(c_int), intent(in), target :: counts(*), neighbour(*)
    integer(c_int), intent(in), target, optional :: owner(*)
    type(c_ptr) :: owners
    resil_spr_select = 0
    owners = c_null_ptr
    if (present(owner)) owners = c_loc(owner)
    if (set >= 0 .and. associated(spr_select_pointer)) resil_spr_select = int(spr_select_pointer(int(set, c_int), &
      int(local, c_int64_t), int(total, c_int64_t), c_loc(offset), c_loc(counts), c_loc(neighbour), 1_c_int, owners))
  end function

  !> Before a kernel: sends the fields (resil_spr_bit) that have changed since they were last sent. total = -1: around
  !> what is no kernel, see resil.h.
  subroutine resil_spr_begin(set, step, local, total, fields)
    integer, intent(in) :: set, step, local, total
    integer(c_int64_t), intent(in) :: fields
    if (set >= 0 .and. associated(spr_begin_pointer)) call spr_begin_pointer(int(set, c_int), int(step, c_int64_t), &
      int(local, c_int64_t), int(total, c_int64_t), fields)
  end subroutine

  !> After it: computes the replicas of the rank before and compares. How many particles differ; -1: rolled back.
  integer(c_int64_t) function resil_spr_end(set, results, kernel, argument, policy)
    integer, intent(in) :: set, policy
    integer(c_int64_t), intent(in) :: results
    procedure(spr_kernel) :: kernel
    type(c_ptr), intent(in) :: argument
    resil_spr_end = 0
    if (set >= 0 .and. associated(spr_end_pointer)) resil_spr_end = spr_end_pointer(int(set, c_int), results, &
      c_funloc(kernel), argument, int(policy, c_int))
  end function

  !> Within a kernel: `results` of the particles first to last, from 1 on, are finished, and kept until resil_spr_end.
  subroutine resil_spr_computed(set, results, first, last)
    integer, intent(in) :: set, first, last
    integer(c_int64_t), intent(in) :: results
    if (set >= 0 .and. associated(spr_computed_pointer)) call spr_computed_pointer(int(set, c_int), results, &
      int(first - 1, c_int64_t), int(last - first + 1, c_int64_t))
  end subroutine

  !> `hook` restores a checkpoint on all members, see resil.h.
  subroutine resil_spr_rollback(set, hook, argument)
    integer, intent(in) :: set
    procedure(spr_hook) :: hook
    type(c_ptr), intent(in) :: argument
    if (set >= 0 .and. associated(spr_rollback_pointer)) &
      call spr_rollback_pointer(int(set, c_int), c_funloc(hook), argument)
  end subroutine

  !> Keeps fields of the local particles, here and on the next rank, see resil.h. 1: not; the older one remains.
  integer function resil_spr_keep(set, step, local, fields)
    integer, intent(in) :: set, step, local
    integer(c_int64_t), intent(in) :: fields
    resil_spr_keep = 1
    if (set >= 0 .and. associated(spr_keep_pointer)) resil_spr_keep = int(spr_keep_pointer(int(set, c_int), &
      int(step, c_int64_t), int(local, c_int64_t), fields))
  end function

  !> The step of the newest that was kept, not after `step`, -1: none; resil_spr_own or resil_spr_before.
  integer function resil_spr_kept(set, step, of, copy)
    integer, intent(in) :: set, step, of
    type(resil_spr_replicas), intent(out) :: copy
    resil_spr_kept = -1
    copy = resil_spr_replicas(0, 0, 0, 0, c_null_ptr, c_null_ptr, c_null_ptr, c_null_ptr)
    if (set >= 0 .and. associated(spr_kept_pointer)) &
      resil_spr_kept = int(spr_kept_pointer(int(set, c_int), int(step, c_int64_t), int(of, c_int), copy))
  end function

  !> All particles of the rank before, as they were last sent. 1: they are not here.
  integer function resil_spr_copy(set, copy)
    integer, intent(in) :: set
    type(resil_spr_replicas), intent(out) :: copy
    resil_spr_copy = 1
    copy = resil_spr_replicas(0, 0, 0, 0, c_null_ptr, c_null_ptr, c_null_ptr, c_null_ptr)
    if (set >= 0 .and. associated(spr_copy_pointer)) resil_spr_copy = int(spr_copy_pointer(int(set, c_int), copy))
  end function

end module resil
