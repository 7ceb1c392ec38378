/** Format a shortcut for display: `mod+K` is `Ctrl K`, or `⌘ K` on a Mac. */
export function shortcutText(keys: string): string {
  const isMac = navigator.userAgent.includes('Mac OS')
  return keys
    .split('+')
    .map((key) => (key === 'mod' ? (isMac ? '⌘' : 'Ctrl') : key.length === 1 ? key.toUpperCase() : key))
    .map((key) => (key === 'shift' ? 'Shift' : key === 'alt' ? 'Alt' : key))
    .join(' ')
}
