! SPDX-License-Identifier: Apache-2.0
!
! Fortran through mpif.h: point-to-point, collectives, MPI_IN_PLACE, MPI_BOTTOM, ignored statuses, a user operator,
! nonblocking and persistent calls. Written as old programs are: implicit interfaces, arrays by address.
!
! ranks: 2
! calls: MPI_Init=1 MPI_Send=1 MPI_Recv=1 MPI_Isend=1 MPI_Irecv=1 MPI_Waitall=1 MPI_Bcast=1 MPI_Allreduce=2 MPI_Reduce=1
! calls: MPI_Gather=1 MPI_Alltoall=1 MPI_Op_create=1 MPI_Op_free=1 MPI_Sendrecv=1 MPI_Send_init=1 MPI_Recv_init=1
! calls: MPI_Startall=2 MPI_Comm_split=1 MPI_Comm_free=1 MPI_Barrier=1 MPI_Finalize=1
subroutine largest(in, inout, count, type)
  implicit none
  integer :: count, type, i
  integer :: in(count), inout(count)
  do i = 1, count
    if (abs(in(i)) > abs(inout(i))) inout(i) = in(i)
  end do
end subroutine

program fortran_mpif
  implicit none
  include 'mpif.h'
  external :: largest
  integer, parameter :: n = 1000
  integer :: ierr, me, peer, i, op, comm, rank, requests(2), status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2)
  integer :: numbers(4), results(4), everyone(8), round, arrived
  common /persistent/ arrived  ! what an external procedure may change
  double precision :: mine(n), theirs(n), total

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  peer = 1 - me
  do i = 1, n
    mine(i) = 1d0 / (i + me)
  end do

  if (me == 0) then
    call MPI_Send(mine, n, MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD, ierr)
    call MPI_Recv(theirs, n, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
    if (status(MPI_SOURCE) /= peer .or. status(MPI_TAG) /= 2) stop 1
  else
    call MPI_Recv(theirs, n, MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    call MPI_Send(mine, n, MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD, ierr)
  end if
  if (theirs(n) /= 1d0 / (n + peer)) stop 2

  call MPI_Irecv(theirs, n, MPI_DOUBLE_PRECISION, peer, 3, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Isend(mine, n, MPI_DOUBLE_PRECISION, peer, 3, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_Waitall(2, requests, statuses, ierr)
  if (statuses(MPI_SOURCE, 1) /= peer) stop 3

  call MPI_Sendrecv(me, 1, MPI_INTEGER, peer, 4, i, 1, MPI_INTEGER, peer, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  if (i /= peer) stop 4

  total = 0
  do i = 1, n
    total = total + mine(i)
  end do
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  numbers = (/ 1 + me, -5 * me, 3, me /)
  call MPI_Op_create(largest, .true., op, ierr)
  call MPI_Allreduce(numbers, results, 4, MPI_INTEGER, op, MPI_COMM_WORLD, ierr)
  call MPI_Op_free(op, ierr)
  if (any(results /= (/ 2, -5, 3, 1 /))) stop 5
  results = numbers
  if (me == 0) then
    call MPI_Reduce(MPI_IN_PLACE, results, 4, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
    if (results(1) /= 3) stop 6
  else
    call MPI_Reduce(numbers, results, 4, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
  end if
  call MPI_Gather(numbers, 4, MPI_INTEGER, everyone, 4, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  if (me == 0 .and. everyone(6) /= -5) stop 7
  call MPI_Alltoall(numbers, 2, MPI_INTEGER, results, 2, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call MPI_Bcast(numbers, 4, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
  if (numbers(2) /= -5) stop 8

  call MPI_Send_init(me, 1, MPI_INTEGER, peer, 5, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Recv_init(arrived, 1, MPI_INTEGER, peer, 5, MPI_COMM_WORLD, requests(2), ierr)
  do round = 1, 2
    arrived = -1
    call MPI_Startall(2, requests, ierr)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierr)
    call MPI_Wait(requests(2), status, ierr)
    if (arrived /= peer) stop 9
  end do
  call MPI_Request_free(requests(1), ierr)
  call MPI_Request_free(requests(2), ierr)

  call MPI_Comm_split(MPI_COMM_WORLD, 7, -me, comm, ierr)
  call MPI_Comm_rank(comm, rank, ierr)
  if (rank /= peer) stop 10
  call MPI_Comm_free(comm, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Finalize(ierr)
  if (me == 0) print '(a, z16.16)', 'fortran_mpif ', transfer(total, 1_8)
end program
