import { SegmentedControl, Tooltip } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { short } from '~/parts/numbers'
import { colourOf, css, inkOn, type Palette } from './palette'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'
import { useTensorViews } from './views'

/** The legend of a heat map's colours and marks. */
export function Legend(props: { largest: number; palette: Palette; isSmall: boolean }) {
  const { largest, palette, isSmall } = props
  const { t } = useTranslation(tensorTexts)
  const { colours, setColours } = useTensorViews()
  const stops = Array.from({ length: 21 }, (_, index) => {
    const number = ((index - 10) / 10) * (largest || 1)
    return css(colourOf(number, largest || 1, colours, palette))
  })
  const marks = [
    ['✕', 'NaN', palette.nan],
    ['▲', '+Inf', palette.infinite],
    ['▼', '-Inf', palette.infinite],
  ] as const
  return (
    <div className={styles.legend} data-testid="heat-map-legend">
      <span className="mono">{short(-largest)}</span>
      <Tooltip
        label={`${t('colourScale', { least: short(-largest), most: short(largest) })}${
          colours === 'logarithmic' ? ` (${t('logScale')})` : ''
        }`}
      >
        <span
          className={styles.scale}
          style={{ background: `linear-gradient(to right, ${stops.join(', ')})` }}
        />
      </Tooltip>
      <span className="mono">{short(largest)}</span>
      {!isSmall &&
        marks.map(([mark, name, colour]) => (
          <span key={name} className={styles.markName}>
            <span
              className={styles.mark}
              style={{ background: css(colour), color: inkOn(colour) }}
              aria-hidden
            >
              {mark}
            </span>
            {name}
          </span>
        ))}
      {!isSmall && (
        <SegmentedControl
          className={styles.segments ?? ''}
          ml="auto"
          aria-label={t('colours')}
          value={colours}
          onChange={(value) => setColours(value === 'linear' ? 'linear' : 'logarithmic')}
          data={[
            { value: 'linear', label: t('linear') },
            { value: 'logarithmic', label: t('logarithmic') },
          ]}
        />
      )}
    </div>
  )
}
