import { useTranslation } from 'react-i18next'
import { css, inkOn, PALETTES } from '~/panels/tensor/palette'
import { short } from '~/parts/numbers'
import { INKS } from './inks'
import classes from './overview.module.css'
import { colourAt, ZERO, type Scale, type Theme } from './scale'
import { overviewTexts } from './texts'

/** The legend of the colours and signs. */
export function Legend(props: { scale: Scale; theme: Theme; isMerged: boolean }) {
  const { scale, theme } = props
  const { t } = useTranslation(overviewTexts)
  const { nan, infinite } = PALETTES[theme]
  const ink = INKS[theme]
  return (
    <div className={classes['legend']}>
      <Colours scale={scale} theme={theme} />
      {scale.kind === 'magnitude' && (
        <Item label={t('zero')}>
          <rect width="14" height="14" rx="2" fill={css(ZERO[theme])} />
        </Item>
      )}
      <Item label={t('nan')}>
        <rect width="14" height="14" rx="2" fill={css(nan)} />
        <path d="M4 4 10 10 M10 4 4 10" stroke={inkOn(nan)} strokeWidth="1.8" />
      </Item>
      <Item label={t('infinite')}>
        <rect width="14" height="14" rx="2" fill={css(infinite)} />
        <path d="M7 3 11 10.5 H3 Z" fill={inkOn(infinite)} />
      </Item>
      <Item label={t('hit')}>
        <circle cx="7" cy="7" r="5" fill="none" stroke={ink.hit} strokeWidth="2" />
      </Item>
      <Item label={t('nothing')}>
        <rect x="0.5" y="0.5" width="13" height="13" fill={ink.back} stroke={ink.line} />
        <path d="M0 8 8 0 M2 14 14 2 M8 14 14 8" stroke={ink.line} strokeWidth="1" />
      </Item>
      <Item label={t('shown')}>
        <path d="M2 1 H12 L7 7 Z" fill={ink.chosen} />
        <rect x="4" y="8" width="6" height="6" fill="none" stroke={ink.chosen} strokeWidth="1.5" />
      </Item>
      <span className={classes['hint']}>{t(props.isMerged ? 'hintMany' : 'hint')}</span>
    </div>
  )
}

function Colours({ scale, theme }: { scale: Scale; theme: Theme }) {
  const shares = Array.from({ length: 11 }, (_, index) =>
    scale.kind === 'signed' ? (index - 5) / 5 : index / 10,
  )
  const gradient = shares.map((share) => css(colourAt(share, scale.kind, theme))).join(', ')
  const cut = scale.isCut ? '≥ ' : ''
  const ends =
    scale.kind === 'percent'
      ? ['0 %', '100 %']
      : scale.kind === 'signed'
        ? [`${scale.isCut ? '≤ ' : ''}−${short(scale.high)}`, `${cut}${short(scale.high)}`]
        : [`${scale.isCut ? '≤ ' : ''}${short(scale.low)}`, `${cut}${short(scale.high)}`]
  return (
    <span className={classes['legendItem']}>
      {ends[0]}
      <span className={classes['colours']} style={{ background: `linear-gradient(to right, ${gradient})` }} />
      {ends[1]}
    </span>
  )
}

function Item({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <span className={classes['legendItem']}>
      <svg width="14" height="14" aria-hidden>
        {children}
      </svg>
      {label}
    </span>
  )
}
