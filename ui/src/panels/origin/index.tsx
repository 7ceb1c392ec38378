export function OriginBanner() {
  return null
}
