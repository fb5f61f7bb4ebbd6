// Sizes, times and shares as people read them, the same as on the command line (stager/model/units.py).

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "—";
  let left = bytes;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (Math.abs(left) < 999.5 || unit === "TB") return unit === "B" ? `${Math.round(left)} B` : `${Number(left.toPrecision(3))} ${unit}`;
    left /= 1000;
  }
}

const two = (number) => String(number).padStart(2, "0");

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "—";
  if (seconds === 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

// What is only estimated does not say more than it knows.
export function roughly(seconds) {
  return seconds === null || seconds === undefined ? "—" : `about ${seconds < 10 ? `${Math.max(1, Math.round(seconds))} s` : duration(seconds)}`;
}

export const percent = (share) => (share === null || share === undefined ? "—" : `${(share * 100).toFixed(share < 0.1 && share > 0 ? 1 : 0)} %`);

export const count = (number, noun, plural = `${noun}s`) => `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;

export const rate = (bytesPerS) => `${size(bytesPerS)}/s`;

export function money(amount, currency) {
  const digits = amount >= 100 ? 0 : amount >= 1 ? 2 : amount >= 0.01 ? 3 : 5;
  return `${Number(amount.toFixed(digits))} ${currency}`;
}

export function when(seconds) {
  const date = new Date(seconds * 1000);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return new Date().toDateString() === date.toDateString() ? time : `${day} ${time}`;
}

// States as they are written everywhere, with spaces.
export const words = (state) => state.replaceAll("_", " ");
