/** What `vite.config.ts` makes of an icon's name. */
declare module '~icons/tabler/*' {
  const icon: import('./parts/svgIcon').Icon
  export default icon
}
