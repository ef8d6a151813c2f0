! SPDX-License-Identifier: Apache-2.0
!
! Module resil: what resil.h is to C. Compile this file with your program; nothing to link. The library is looked up
! once at run time; without libresil.so in LD_PRELOAD the calls do nothing. Names may have trailing blanks.
module resil
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: resil_step, resil_norm, resil_checksum, resil_count, resil_drain

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

end module resil
