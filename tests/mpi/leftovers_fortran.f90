! SPDX-License-Identifier: Apache-2.0
!
! What leftovers.c does, by each of the three Fortran bindings: leftovers_fortran f08|use|mpif free|leave
module callbacks
  implicit none
contains
  subroutine add_f08(in, out, count, type)
    use mpi_f08
    use, intrinsic :: iso_c_binding, only : c_ptr
    type(c_ptr), value :: in, out
    integer :: count
    type(MPI_Datatype) :: type
  end subroutine
  subroutine add(in, out, count, type)
    integer :: count, type
    integer :: in(*), out(*)
    out(1:count) = in(1:count) + out(1:count)
  end subroutine
end module

subroutine by_f08(leave)
  use mpi_f08
  use callbacks
  implicit none
  logical, intent(in) :: leave
  type(MPI_Comm) :: comm, later
  type(MPI_Group) :: group, one
  type(MPI_Datatype) :: type, part(1)
  type(MPI_Op) :: op
  type(MPI_Win) :: win
  type(MPI_Info) :: info
  type(MPI_Errhandler) :: handler
  type(MPI_Request) :: request, ready
  integer :: key, rank, size, integers(3), here, number
  integer, save, asynchronous :: there(2), memory(4)
  integer(MPI_ADDRESS_KIND) :: addresses(1)
  character, save, asynchronous :: room(2000)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_idup(MPI_COMM_WORLD, later, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call MPI_Comm_free(comm)
  call MPI_Comm_group(MPI_COMM_WORLD, group)
  call MPI_Group_incl(group, 1, [0], one)
  call MPI_Group_free(one)
  call MPI_Type_contiguous(3, MPI_INTEGER, type)
  call MPI_Type_commit(type)
  call MPI_Type_get_contents(type, 1, 0, 1, integers, addresses, part)
  call MPI_Op_create(add_f08, .true., op)
  call MPI_Win_create(memory, 16_MPI_ADDRESS_KIND, 1, MPI_INFO_NULL, MPI_COMM_WORLD, win)
  call MPI_Win_free(win)
  call MPI_Info_create(info)
  call MPI_Comm_get_errhandler(MPI_COMM_WORLD, handler)
  call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
  call MPI_Irecv(there(1), 1, MPI_INTEGER, rank, 7, MPI_COMM_WORLD, request)
  call MPI_Recv_init(there(2), 1, MPI_INTEGER, rank, 8, MPI_COMM_WORLD, ready)
  call MPI_Buffer_attach(room, 2000)
  if (leave) return
  call MPI_Comm_free(later)
  call MPI_Group_free(group)
  call MPI_Type_free(type)
  call MPI_Op_free(op)
  call MPI_Info_free(info)
  call MPI_Comm_free_keyval(key)
  call MPI_Send(here, 1, MPI_INTEGER, rank, 7, MPI_COMM_WORLD)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call MPI_Request_free(ready)
  call detach
contains
  subroutine detach
    use, intrinsic :: iso_c_binding, only : c_ptr
    type(c_ptr) :: at
    call MPI_Buffer_detach(at, size)
  end subroutine
end subroutine

subroutine by_use(leave)
  use mpi
  use callbacks
  implicit none
  logical, intent(in) :: leave
  integer :: comm, later, group, one, type, part(1), op, win, info, handler, request, ready, error
  integer :: key, rank, size, integers(3), here
  integer, save :: there(2), memory(4)
  integer(MPI_ADDRESS_KIND) :: addresses(1), at
  character, save :: room(2000)
  include 'leftovers_calls.fi'
end subroutine

subroutine by_mpif(leave)
  use callbacks
  implicit none
  include 'mpif.h'
  logical, intent(in) :: leave
  integer :: comm, later, group, one, type, part(1), op, win, info, handler, request, ready, error
  integer :: key, rank, size, integers(3), here
  integer, save :: there(2), memory(4)
  integer(MPI_ADDRESS_KIND) :: addresses(1), at
  character, save :: room(2000)
  include 'leftovers_calls.fi'
end subroutine

program leftovers
  use mpi
  implicit none
  character(8) :: binding, what
  integer :: error
  call get_command_argument(1, binding)
  call get_command_argument(2, what)
  call MPI_Init(error)
  if (binding == 'f08') call by_f08(what == 'leave')
  if (binding == 'use') call by_use(what == 'leave')
  if (binding == 'mpif') call by_mpif(what == 'leave')
  call MPI_Finalize(error)
end program
