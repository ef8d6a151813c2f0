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
  public :: resil_policy_default, resil_policy_abort, resil_policy_retry, resil_policy_continue, resil_local

  !> What resil_run_twice does about a difference; resil_local is added where the step does not communicate.
  integer, parameter :: resil_policy_default = 0, resil_policy_abort = 1, resil_policy_retry = 2, &
    resil_policy_continue = 3, resil_local = 16

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

end module resil
