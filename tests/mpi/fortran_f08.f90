! SPDX-License-Identifier: Apache-2.0
!
! Fortran through `use mpi_f08`: typed handles, statuses as derived types, optional error arguments left out, array
! sections, a user operator, nonblocking collectives. Neither MPI_Init nor ierror arguments where they may be left.
!
! ranks: 2
! calls: MPI_Send=1 MPI_Recv=1 MPI_Isend=2 MPI_Irecv=2 MPI_Waitall=1 MPI_Allreduce=2 MPI_Bcast=1 MPI_Iallreduce=1
! calls: MPI_Wait=1 MPI_Comm_dup=1 MPI_Comm_free=1 MPI_Op_create=1 MPI_Op_free=1 MPI_Barrier=1 MPI_Sendrecv=1
! calls: MPI_Reduce=1 MPI_Get_count=1 MPI_Pack=1 MPI_Unpack=1 MPI_Reduce_local=1
subroutine add(in, inout, count, type)
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  type(c_ptr), value :: in, inout
  integer :: count
  type(MPI_Datatype) :: type
  integer, pointer :: a(:), b(:)
  call c_f_pointer(in, a, (/ count /))
  call c_f_pointer(inout, b, (/ count /))
  b = b + a
end subroutine

program fortran_f08
  use mpi_f08
  implicit none
  procedure(MPI_User_function) :: add
  integer, parameter :: n = 512
  integer :: me, peer, i, count, numbers(3), results(3)
  double precision :: mine(n), theirs(n), packed(n), total
  type(MPI_Status) :: status
  type(MPI_Request) :: requests(4), request
  type(MPI_Comm) :: comm
  type(MPI_Op) :: op

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  peer = 1 - me
  mine = (/ (1d0 / (3 * i + me), i = 1, n) /)
  if (me == 0) then
    call MPI_Send(mine, n, MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD)
    call MPI_Recv(theirs, n, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, status)
    call MPI_Get_count(status, MPI_DOUBLE_PRECISION, count)
    if (status%MPI_SOURCE /= peer .or. count /= n) stop 1
  else
    call MPI_Recv(theirs, n, MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Send(mine, n, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD)
  end if
  if (theirs(7) /= 1d0 / (21 + peer)) stop 2

  call MPI_Irecv(theirs(1:n/2), n / 2, MPI_DOUBLE_PRECISION, peer, 3, MPI_COMM_WORLD, requests(1))
  call MPI_Irecv(theirs(n/2+1:n), n / 2, MPI_DOUBLE_PRECISION, peer, 4, MPI_COMM_WORLD, requests(2))
  call MPI_Isend(mine(n/2+1:n), n / 2, MPI_DOUBLE_PRECISION, peer, 4, MPI_COMM_WORLD, requests(3))
  call MPI_Isend(mine(1:n/2), n / 2, MPI_DOUBLE_PRECISION, peer, 3, MPI_COMM_WORLD, requests(4))
  call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
  if (theirs(n) /= 1d0 / (3 * n + peer)) stop 3
  call MPI_Sendrecv(me, 1, MPI_INTEGER, peer, 5, i, 1, MPI_INTEGER, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  if (i /= peer) stop 4

  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  total = sum(mine)
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, comm)
  numbers = (/ 1, 10 * me, 5 /)
  call MPI_Op_create(add, .true., op)
  call MPI_Allreduce(numbers, results, 3, MPI_INTEGER, op, comm)
  if (any(results /= (/ 2, 10, 10 /))) stop 5
  call MPI_Op_free(op)
  call MPI_Iallreduce(numbers, results, 3, MPI_INTEGER, MPI_MAX, comm, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (results(2) /= 10) stop 6
  call MPI_Reduce(numbers, results, 3, MPI_INTEGER, MPI_MIN, 0, comm)
  call MPI_Bcast(numbers, 3, MPI_INTEGER, 1, comm)
  if (numbers(2) /= 10) stop 7
  i = 8
  call MPI_Pack(mine, n / 2, MPI_DOUBLE_PRECISION, packed, 8 * n, i, comm)
  if (i /= 8 + 4 * n) stop 8
  i = 8
  call MPI_Unpack(packed, 8 * n, i, theirs, n / 2, MPI_DOUBLE_PRECISION, comm)
  if (i /= 8 + 4 * n .or. any(theirs(1:n/2) /= mine(1:n/2))) stop 9
  call MPI_Reduce_local(mine, theirs, n / 2, MPI_DOUBLE_PRECISION, MPI_SUM)
  if (any(theirs(1:n/2) /= 2 * mine(1:n/2))) stop 10
  call MPI_Comm_free(comm)
  call MPI_Barrier(MPI_COMM_WORLD)
  call MPI_Finalize()
  if (me == 0) print '(a, z16.16)', 'fortran_f08 ', transfer(total, 1_8)
end program
