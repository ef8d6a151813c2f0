! SPDX-License-Identifier: Apache-2.0
!
! sites.c with a main program in Fortran, by mpi_f08: the same arguments.
module loader
  use, intrinsic :: iso_c_binding
  implicit none
  abstract interface
    subroutine step_interface(what, value)
      integer :: what
      double precision :: value
    end subroutine
  end interface
  interface
    function dlopen(path, flags) bind(c)
      import
      type(c_ptr) :: dlopen
      character(kind=c_char) :: path(*)
      integer(c_int), value :: flags
    end function
    function dlsym(library, name) bind(c)
      import
      type(c_funptr) :: dlsym
      type(c_ptr), value :: library
      character(kind=c_char) :: name(*)
    end function
    function dlclose(library) bind(c)
      import
      integer(c_int) :: dlclose
      type(c_ptr), value :: library
    end function
  end interface
contains
  subroutine own_step(what, value)
    use mpi_f08
    integer :: what, rank
    double precision :: value, total, many(64)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    many = value
    if (what == 1) then
      call MPI_Allreduce(value, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
      value = total
    else if (what == 3) then
      call MPI_Recv(many, 64, MPI_DOUBLE_PRECISION, 1 - rank, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    else if (rank == 0) then
      call MPI_Send(many, 64, MPI_DOUBLE_PRECISION, 1, 7, MPI_COMM_WORLD)
    else
      call MPI_Recv(many, 64, MPI_DOUBLE_PRECISION, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    end if
  end subroutine
end module

program sites_fortran
  use mpi_f08
  use loader
  implicit none
  integer :: i, what, rank, differs, status
  double precision :: value
  character(1000) :: path, word
  type(c_ptr) :: library
  type(c_funptr) :: address
  procedure(step_interface), pointer :: step

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  differs = -1
  call get_environment_variable("DIFFERS_AT", word, status=status)
  if (status == 0) read (word, *) differs
  do i = 1, command_argument_count() - 1, 2
    value = i
    call get_command_argument(i, path)
    call get_command_argument(i + 1, word)
    read (word, *) what
    if (rank == 1 .and. (i - 1) / 2 == differs) value = value + 0.5d0
    if (path == "main") then
      call own_step(what, value)
      cycle
    end if
    library = dlopen(trim(path(merge(2, 1, path(1:1) == "+"):)) // c_null_char, 2)
    if (.not. c_associated(library)) stop 1
    address = dlsym(library, "step_" // c_null_char)
    if (.not. c_associated(address)) stop 2
    call c_f_procpointer(address, step)
    call step(what, value)
    if (path(1:1) == "+") then
      if (dlclose(library) /= 0) stop 3
    end if
  end do
  call MPI_Finalize()
end program
