! SPDX-License-Identifier: Apache-2.0
!
! Diffusion on a periodic cube by fast Fourier transforms, as spectral codes are: the cube in slabs, one transposition by
! MPI_Alltoall in every transform, a sum over the ranks in every step. Prints the sum of each step in decimal and bit for bit, so
! that any two runs can be compared, and how far two identities are from holding: a transform and its inverse give the field
! back, and diffusion keeps its mean. Arguments: points along one side (a power of two, at least as many as ranks), steps.
program fft
  use mpi_f08
  use iso_fortran_env, only : int64, real64
  implicit none
  real(real64), parameter :: pi = acos(-1d0), diffusivity = 1d-4
  integer :: me, ranks, n, slab, step, steps, i, j, k
  complex(real64), allocatable :: start(:, :, :), field(:, :, :), spectrum(:, :, :), now(:, :, :), twiddle(:)
  complex(real64), allocatable, asynchronous :: packed(:, :, :, :), moved(:, :, :, :)
  complex(real64) :: mean, sums(2), own(2)
  real(real64) :: difference, worst
  integer(int64) :: seed
  character(len=16) :: text

  call get_command_argument(1, text)
  read (text, *) n
  call get_command_argument(2, text)
  read (text, *) steps
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  if (popcnt(n) /= 1 .or. mod(n, ranks) /= 0) then
    if (me == 0) print '(a)', 'fft: the points along one side must be a power of two and a multiple of the ranks'
    call MPI_Abort(MPI_COMM_WORLD, 2)
  end if
  slab = n / ranks
  allocate (start(n, n, slab), field(n, n, slab), spectrum(n, n, slab), now(n, n, slab))
  allocate (packed(n, slab, slab, 0:ranks-1), moved(n, slab, slab, 0:ranks-1), twiddle(0:n/2-1))
  twiddle = [(exp(cmplx(0d0, -2 * pi * i / n, real64)), i = 0, n/2 - 1)]
  do k = 1, slab
    do j = 1, n
      do i = 1, n
        seed = int(i - 1, int64) + n * (int(j - 1, int64) + n * int(me * slab + k - 1, int64))
        start(i, j, k) = cmplx(noise(2 * seed), noise(2 * seed + 1), real64)
      end do
    end do
  end do
  own(1) = sum(start)
  call MPI_Allreduce(own, sums, 1, MPI_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD)
  mean = sums(1)
  field = start
  call forward(field, spectrum)
  do step = 0, steps
    do k = 1, slab  ! of y; z is the first index of the spectrum, x the second
      do j = 1, n
        do i = 1, n
          now(i, j, k) = spectrum(i, j, k) * exp(-4 * pi**2 * diffusivity * step * &
                         (wave(i - 1)**2 + wave(j - 1)**2 + wave(me * slab + k - 1)**2))
        end do
      end do
    end do
    call backward(now, field)
    if (step == 0) difference = maxval(abs(field - start))
    own(1) = sum(field)
    own(2) = sum(field(::3, ::5, :))
    call MPI_Allreduce(own, sums, 2, MPI_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD)
    difference = max(difference, abs(sums(1) - mean) / n**2)
    if (me == 0) print '(a, i6, 2es24.16, 2z18.16)', 'sum', step, sums(2), transfer(real(sums(2)), 0_int64), &
                       transfer(aimag(sums(2)), 0_int64)
  end do
  call MPI_Reduce(difference, worst, 1, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD)
  if (me == 0) print '(a, es10.2)', 'identities hold to', worst
  call MPI_Finalize()

contains

  ! -0.5 to 0.5, the same for a point whatever the ranks.
  pure real(real64) function noise(point)
    integer(int64), intent(in) :: point
    integer(int64) :: bits
    bits = iand(point * 2654435761_int64 + 12345, 4294967295_int64)
    bits = iand(ieor(bits, shiftr(bits, 15)) * 2246822519_int64, 4294967295_int64)
    bits = iand(ieor(bits, shiftr(bits, 13)) * 3266489917_int64, 4294967295_int64)
    noise = real(ieor(bits, shiftr(bits, 16)), real64) / 4294967296d0 - 0.5d0
  end function

  ! The wave number of a coefficient.
  pure real(real64) function wave(index)
    integer, intent(in) :: index
    wave = real(merge(index, index - n, index <= n/2), real64)
  end function

  ! Stockham's transform of one line; sign -1 is the inverse, not scaled.
  subroutine line(a, sign)
    complex(real64), intent(inout) :: a(0:n-1)
    integer, intent(in) :: sign
    complex(real64) :: b(0:n-1), w, left, right
    integer :: half, stride, p, q
    half = n / 2
    stride = 1
    do while (half >= 1)
      do p = 0, half - 1
        w = merge(twiddle(p * stride), conjg(twiddle(p * stride)), sign > 0)
        do q = 0, stride - 1
          left = a(q + stride * p)
          right = a(q + stride * (p + half))
          b(q + stride * 2 * p) = left + right
          b(q + stride * (2 * p + 1)) = (left - right) * w
        end do
      end do
      a = b
      half = half / 2
      stride = stride * 2
    end do
  end subroutine

  ! field(x, y, own z) to spectrum(z, x, own y).
  subroutine forward(a, b)
    complex(real64), intent(inout) :: a(n, n, slab)
    complex(real64), intent(out) :: b(n, n, slab)
    complex(real64) :: column(n)
    integer :: x, y, z, rank
    do z = 1, slab
      do y = 1, n
        call line(a(:, y, z), 1)
      end do
      do x = 1, n
        column = a(x, :, z)
        call line(column, 1)
        a(x, :, z) = column
      end do
    end do
    do rank = 0, ranks - 1
      do z = 1, slab
        packed(:, :, z, rank) = a(:, rank*slab+1:(rank+1)*slab, z)
      end do
    end do
    call MPI_Alltoall(packed, n * slab**2, MPI_DOUBLE_COMPLEX, moved, n * slab**2, MPI_DOUBLE_COMPLEX, MPI_COMM_WORLD)
    do y = 1, slab
      do rank = 0, ranks - 1
        do z = 1, slab
          b(rank * slab + z, :, y) = moved(:, y, z, rank)
        end do
      end do
      do x = 1, n
        call line(b(:, x, y), 1)
      end do
    end do
  end subroutine

  ! spectrum(z, x, own y), which it overwrites, to field(x, y, own z).
  subroutine backward(b, a)
    complex(real64), intent(inout) :: b(n, n, slab)
    complex(real64), intent(out) :: a(n, n, slab)
    complex(real64) :: column(n)
    integer :: x, y, z, rank
    do y = 1, slab
      do x = 1, n
        call line(b(:, x, y), -1)
      end do
      do rank = 0, ranks - 1
        do z = 1, slab
          packed(:, y, z, rank) = b(rank * slab + z, :, y)
        end do
      end do
    end do
    call MPI_Alltoall(packed, n * slab**2, MPI_DOUBLE_COMPLEX, moved, n * slab**2, MPI_DOUBLE_COMPLEX, MPI_COMM_WORLD)
    do z = 1, slab
      do rank = 0, ranks - 1
        a(:, rank*slab+1:(rank+1)*slab, z) = moved(:, :, z, rank)
      end do
      do x = 1, n
        column = a(x, :, z)
        call line(column, -1)
        a(x, :, z) = column
      end do
      do y = 1, n
        call line(a(:, y, z), -1)
      end do
    end do
    a = a / (real(n, real64)**3)
  end subroutine

end program
