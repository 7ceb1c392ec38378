import { createTheme } from '@mantine/core'

export const theme = createTheme({
  // Users who set their system to reduced motion see no fading.
  respectReducedMotion: true,
  primaryColor: 'blue',
  // Dark enough for white text.
  primaryShade: 8,
  defaultRadius: 'sm',
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans CJK SC", "Noto Sans SC", sans-serif',
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, "DejaVu Sans Mono", Menlo, Consolas, monospace',
  fontSizes: { xs: '11px', sm: '12px', md: '13px', lg: '15px', xl: '18px' },
  autoContrast: true,
  components: {
    ActionIcon: { defaultProps: { variant: 'subtle', color: 'gray' } },
    // Badges have short texts, which are useless when truncated.
    Badge: { defaultProps: { styles: { root: { flexShrink: 0, maxWidth: '100%' } } } },
    Button: { defaultProps: { size: 'xs' } },
    Tooltip: { defaultProps: { openDelay: 400, withArrow: true } },
    TextInput: { defaultProps: { size: 'xs' } },
    NumberInput: { defaultProps: { size: 'xs' } },
    Select: { defaultProps: { size: 'xs' } },
    SegmentedControl: { defaultProps: { size: 'xs' } },
    Checkbox: { defaultProps: { size: 'xs' } },
    Text: { defaultProps: { size: 'sm' } },
    Modal: { defaultProps: { styles: { title: { fontSize: 15, fontWeight: 600 } } } },
  },
})
